"use strict";
// A page that was opened from a file may not start workers, and the search is one. This
// is a worker that runs in a hidden frame instead, with as much of one as the search uses.
if (location.protocol === "file:") {
  const load = (scope, url) => new Promise((resolve, reject) => {
    const script = scope.document.createElement("script");
    script.src = String(url);
    script.onload = resolve;
    script.onerror = reject;
    scope.document.body.append(script);
  });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.frame.contentDocument.open();
      this.frame.contentDocument.write("<body></body>");
      this.frame.contentDocument.close();
      this.scope = this.frame.contentWindow;
      this.scope.postMessage = (data) => this.answer(data);
      this.scope.importScripts = async (...urls) => {
        for (const each of urls) await load(this.scope, each);
      };
      this.ready = load(this.scope, url);
    }

    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }

    postMessage(data) {
      this.ready.then(() => {
        const event = new this.scope.MessageEvent("message", { data });
        this.scope.dispatchEvent(event);
        this.scope.onmessage?.(event);
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}

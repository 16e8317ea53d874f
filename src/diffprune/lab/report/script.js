"use strict";
// What the page shows is one choice: an epoch, and a run. Plots follow it, and make it.
const { charts, config, datasets } = JSON.parse(document.getElementById("data").textContent);
const views = [];
const slider = document.getElementById("epoch");
const readout = document.getElementById("readout");

function choose(name, value) {
  for (const { view, names } of views) {
    if (names.has(name)) view.signal(name, value).runAsync();
  }
}

function chooseEpoch(epoch) {
  slider.value = epoch;
  document.getElementById("epoch-number").textContent = epoch;
  const now = datasets.epochs.filter((row) => row.epoch === epoch);
  readout.textContent = now.map((row) => row.says).join("\n");
  choose("epoch", epoch);
}

// Runs of different lengths: what an epoch does not have is left out.
function tooltip(content, escape) {
  const rows = Object.entries(content).filter(([, value]) => value !== "NaN");
  const cells = rows.map(([key, value]) => `<tr><td class="key">${escape(key)}</td><td>${escape(value)}</td></tr>`);
  return `<table>${cells.join("")}</table>`;
}

function draw(element) {
  const spec = { ...charts[element.dataset.chart], datasets };
  const names = new Set((spec.params || []).map((param) => param.name));
  const columns = Math.max(1, Math.floor((element.clientWidth - 48) / spec.usermeta.labelWidth));
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    config: { ...config, legend: { ...config.legend, columns } },
    tooltip: { formatTooltip: tooltip },
  };
  return vegaEmbed(element, spec, options).then(({ view }) => {
    views.push({ view, names });
    if (names.has("hover")) {
      view.addSignalListener("hover", (_, chosen) => {
        if (chosen.epoch) chooseEpoch(chosen.epoch[0]);
      });
    }
  });
}

function followsDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function nameTheme(button) {
  button.textContent = followsDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to ${followsDark() ? "light" : "dark"} colours`);
}

async function copy(button) {
  const code = button.closest(".snippet").querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

const theme = document.getElementById("theme");
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = followsDark() ? "light" : "dark";
  nameTheme(theme);
});
nameTheme(theme);
slider.addEventListener("input", () => chooseEpoch(Number(slider.value)));
document.getElementById("run")?.addEventListener("change", (event) => choose("run", event.target.value));
for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copy(button));
Promise.all([...document.querySelectorAll("[data-chart]")].map(draw)).then(() => {
  chooseEpoch(Number(slider.value));
  document.body.dataset.ready = "";
});

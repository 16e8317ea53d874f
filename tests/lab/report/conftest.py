import shutil

import pytest


@pytest.fixture(scope="session")
def chromium():
    """Debian's browser, driven by Playwright; a report is nothing without one."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no `chromium` on the PATH: reports were not opened in a browser")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright drives the browser"
    )
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()

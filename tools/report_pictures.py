"""Take the pictures of reports in `docs/assets` again; needs Debian's `chromium`.

`python -m tools.report_pictures` trains the demo and two examples, about four minutes.
"""

import runpy
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from benchmarks._command import command
from diffprune.lab.demo import EPOCHS, train_both
from diffprune.lab.report import write_report
from diffprune.lab.training.loop import OnEpoch

ROOT: Final = Path(__file__).parents[1]
ASSETS: Final = ROOT / "docs/assets"
COLORS: Final = 64
"""Enough for a page of few colours, and a quarter of the bytes."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture of a report.

    Attributes:
        report: Whose report is shown.
        width: Of the window, in pixels.
        scheme: Light or dark.
        part: What is shown, as a selector; the top of the page if there is none.
    """

    report: str
    width: int = 1080
    scheme: str = "light"
    part: str | None = None


PICTURES: Final[Mapping[str, Picture]] = {
    "report": Picture(report="demo"),
    "report-network": Picture(report="resnet", part="#network"),
    "report-shares": Picture(report="resnet", part="#share-macs"),
    "report-curves": Picture(report="demo", part="#curve-widths"),
    "report-phone": Picture(report="csv_mlp", width=390, scheme="dark"),
}


def main() -> None:
    """Train, write reports, and take their pictures."""
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = shutil.which("chromium")
        if path is None:
            sys.exit("There is no `chromium` on the PATH: `apt install chromium`.")
        with chdir(folder), console.status("training"):
            reports = _reports()
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        for name, picture in PICTURES.items():
            _take(browser, Path(folder) / reports[picture.report], picture, name)
            console.print(f"Written to {ASSETS.relative_to(ROOT) / name}.png.")


def _reports() -> dict[str, Path]:
    unseen: dict[str, OnEpoch] = {name: lambda _: None for name in ("dense", "pruned")}
    train_both(Path("runs/demo"), seed=0, epochs=EPOCHS, on_epoch=unseen)
    for example in ("resnet", "csv_mlp"):
        runpy.run_path(str(ROOT / f"examples/{example}.py"), run_name="__main__")
    runs: dict[str, Sequence[str]] = {
        "demo": ("runs/demo/dense", "runs/demo/pruned"),
        "resnet": ("runs/stripes-dense", "runs/stripes"),
        "csv_mlp": ("runs/flowers-dense", "runs/flowers"),
    }
    return {
        name: write_report(folders, f"{name}.html", trust=True)
        for name, folders in runs.items()
    }


def _take(browser: Browser, report: Path, picture: Picture, name: str) -> None:
    context = browser.new_context(
        viewport={"width": picture.width, "height": 900},
        color_scheme="dark" if picture.scheme == "dark" else "light",
    )
    page, out = context.new_page(), ASSETS / f"{name}.png"
    page.goto(report.resolve().as_uri())
    page.wait_for_selector("body[data-ready]")
    if picture.part is None:
        page.screenshot(path=out)
    else:
        page.locator(picture.part).screenshot(path=out)
    context.close()
    with Image.open(out) as shown:
        shown.convert("RGB").quantize(COLORS).save(out, optimize=True)


if __name__ == "__main__":
    command(__doc__).parse_args()
    main()

"""Draw the runs of the small wide ResNet, epoch by epoch; trains nothing.

`python docs/wrn_figures.py` reads the records in results/wrn and writes three pictures
into docs/assets: test accuracy, multiply-adds of a mini-batch, seconds per step. The
seconds are those of `python -m benchmarks.wrn_epochs`.
"""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt

from diffprune.lab.runs.records import Epoch, Run
from paper.reproduce import read_records

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "wrn"
TIMINGS = RECORDS / "epochs.json"
PICTURES = ROOT / "docs" / "assets"

ORIGINAL = "wrn-10-1-dense"
COLOURS = {"original": "#555555", "low": "#4477aa", "high": "#cc5522"}
NAMES = {ORIGINAL: "original", "wrn-10-1-low": "low", "wrn-10-1-high": "high"}
WIDTH, HEIGHT = 520, 260

Timings: TypeAlias = Mapping[tuple[str, int], float]
"""Seconds of a training step, by run and epoch."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One picture: what is drawn over the epochs, and how it is called."""

    file: str
    title: str
    value: Callable[[Run, Epoch, Timings], float]
    from_zero: bool


FIGURES = (
    Figure(
        file="wrn-accuracy.svg",
        title="(a) Test accuracy, %",
        value=lambda _, epoch, __: 100 - epoch.test_error,
        from_zero=False,
    ),
    Figure(
        file="wrn-macs.svg",
        title="(b) Multiply-adds of a forward pass, millions per mini-batch",
        value=lambda run, epoch, _: epoch.macs * run.recipe.batch_size / 1e6,
        from_zero=True,
    ),
    Figure(
        file="wrn-seconds.svg",
        title="(c) Seconds per training step: ratio times the original's median",
        value=lambda run, epoch, timings: timings[run.recipe.name, epoch.number],
        from_zero=True,
    ),
)


def read_timings(path: Path) -> Timings:
    """Seconds of each epoch's network if the original always took its usual time.

    Both were timed in turns: a machine that is slow for a minute is so for both.
    """
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    usual = statistics.median(result["original"] for result in results)
    found: dict[tuple[str, int], float] = {}
    for result in results:
        ratio = result["seconds"] / result["original"]
        found[result["run"], result["epoch"]] = ratio * usual
        found[ORIGINAL, result["epoch"]] = usual
    return found


def points(
    figure: Figure, runs: Sequence[Run], timings: Timings
) -> Iterator[dict[str, Any]]:
    """What is drawn, one dictionary for every run and epoch."""
    for run in runs:
        for epoch in run.epochs:
            yield {
                "run": NAMES[run.recipe.name],
                "epoch": epoch.number,
                "value": figure.value(run, epoch, timings),
            }


def draw(figure: Figure, runs: Sequence[Run], timings: Timings) -> alt.Chart:
    """A line for every run."""
    data = list(points(figure, runs, timings))
    epochs = sorted({point["epoch"] for point in data})
    kinds = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    ticks = alt.Axis(values=epochs, format="d", grid=False, title="epoch")
    return (
        alt.Chart(alt.Data(values=data), title=figure.title)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=30))
        .encode(
            x=alt.X("epoch:Q", axis=ticks).scale(domain=[epochs[0], epochs[-1]]),
            y=alt.Y("value:Q", title=None).scale(zero=figure.from_zero),
            color=alt.Color("run:N", title=None, scale=kinds),
        )
        .properties(width=WIDTH, height=HEIGHT, background="white")
        .configure_view(stroke=None)
        .configure_title(anchor="start", fontSize=14, fontWeight="normal", offset=12)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=13, symbolStrokeWidth=2)
    )


def main() -> None:
    """Draw all figures."""
    runs = [run for run in read_records(RECORDS) if run.recipe.name in NAMES]
    timings = read_timings(TIMINGS)
    PICTURES.mkdir(exist_ok=True)
    for figure in FIGURES:
        draw(figure, runs, timings).save(PICTURES / figure.file)


if __name__ == "__main__":
    main()

"""Draw the runs of the small wide ResNet, epoch by epoch; trains nothing.

`python docs/wrn_figures.py` reads the records in results/wrn and writes three pictures
into docs/assets: test accuracy, multiply-adds of a mini-batch, seconds per step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt

from diffprune.experiment.records import Epoch, Run
from diffprune.experiment.reproduce import read_records

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "wrn"
PICTURES = ROOT / "docs" / "assets"

COLOURS = {"original": "#555555", "low": "#4477aa", "high": "#cc5522"}
NAMES = {"wrn-10-1-dense": "original", "wrn-10-1-low": "low", "wrn-10-1-high": "high"}
WIDTH, HEIGHT = 520, 260


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One picture: what is drawn over the epochs, and how it is called."""

    file: str
    title: str
    value: Callable[[Run, Epoch], float]
    from_zero: bool


FIGURES = (
    Figure(
        file="wrn-accuracy.svg",
        title="(a) Test accuracy, %",
        value=lambda _, epoch: 100 - epoch.test_error,
        from_zero=False,
    ),
    Figure(
        file="wrn-macs.svg",
        title="(b) Multiply-adds of a forward pass, millions per mini-batch",
        value=lambda run, epoch: epoch.macs * run.recipe.batch_size / 1e6,
        from_zero=True,
    ),
    Figure(
        file="wrn-seconds.svg",
        title="(c) Seconds per training step, measured",
        value=lambda _, epoch: epoch.processor_seconds / epoch.steps,
        from_zero=True,
    ),
)


def points(figure: Figure, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """What is drawn, one dictionary for every run and epoch."""
    for run in runs:
        for epoch in run.epochs:
            yield {
                "run": NAMES[run.recipe.name],
                "epoch": epoch.number,
                "value": figure.value(run, epoch),
            }


def draw(figure: Figure, runs: Sequence[Run]) -> alt.Chart:
    """A line for every run."""
    data = list(points(figure, runs))
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
    PICTURES.mkdir(exist_ok=True)
    for figure in FIGURES:
        draw(figure, runs).save(PICTURES / figure.file)


if __name__ == "__main__":
    main()

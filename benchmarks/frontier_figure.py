"""Draw how small and how wrong LeNet-5 can be, ours beside what is published.

`python -m benchmarks.frontier_figure` reads the records in results/frontier and writes
docs/assets/frontier.svg; it trains nothing.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from diffprune.experiment import Run
from diffprune.experiment.reproduce import read_records

from .frontier import RECORDS, points

PICTURE = Path(__file__).parent.parent / "docs" / "assets" / "frontier.svg"
COLOURS = {"published": "#888888", "diffprune": "#cc5522"}
WORST = 1.4
SIZE = 300


def values(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """What is drawn, one dictionary for every network."""
    for point in points(runs):
        if point.error <= WORST:
            yield {
                "name": "" if point.is_ours else point.name,
                "kind": "diffprune" if point.is_ours else "published",
                "weights": point.widths.weights,
                "MACs": point.widths.macs,
                "error": point.error,
            }


def draw(runs: Sequence[Run]) -> alt.HConcatChart:
    """Error against weights, and against multiply-adds."""
    data = alt.Data(values=list(values(runs)))
    return (
        alt.hconcat(*(_panel(data, cost) for cost in ("weights", "MACs")))
        .properties(background="white")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=13, orient="top")
    )


def _panel(data: alt.Data, cost: str) -> alt.LayerChart:
    kinds = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    base = alt.Chart(data).encode(
        x=alt.X(f"{cost}:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s")),
        y=alt.Y("error:Q", title="test error, %").scale(zero=False),
        color=alt.Color("kind:N", title=None, scale=kinds),
    )
    names = base.mark_text(align="left", dx=6, fontSize=9).encode(text="name:N")
    return (base.mark_circle(size=50) + names).properties(width=SIZE, height=SIZE)


def main() -> None:
    """Draw it."""
    PICTURE.parent.mkdir(exist_ok=True)
    draw(read_records(RECORDS)).save(PICTURE)


if __name__ == "__main__":
    main()

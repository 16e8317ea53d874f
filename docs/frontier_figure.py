"""Draw how small and how wrong LeNet-5 can be, ours beside what is published.

`python docs/frontier_figure.py` reads results/frontier/front.json, which `python -m
benchmarks.frontier` writes, and draws docs/assets/frontier.svg; it trains nothing.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results" / "frontier" / "front.json"
PICTURE = ROOT / "docs" / "assets" / "frontier.svg"
COLOURS = {"published": "#888888", "diffprune": "#cc5522"}
WORST = 1.4
SIZE = 300

Point = dict[str, Any]


def read() -> list[Point]:
    """Read all networks there are."""
    return json.loads(RECORD.read_text(encoding="utf-8"))["results"]


def shown(points: Sequence[Point]) -> Iterator[Point]:
    """Those that are drawn; only what others have published has a name beside it."""
    for point in points:
        if point["error"] <= WORST:
            ours = point["is_ours"]
            kind = "diffprune" if ours else "published"
            yield {**point, "kind": kind, "name": "" if ours else point["name"]}


def draw(points: Sequence[Point]) -> alt.HConcatChart:
    """Error against weights, and against multiply-adds."""
    data = alt.Data(values=list(shown(points)))
    panels = {"weights": "weights", "macs": "multiply-adds"}
    return (
        alt.hconcat(*(_panel(data, *panel) for panel in panels.items()))
        .properties(background="white")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=13, orient="top")
    )


def _panel(data: alt.Data, cost: str, title: str) -> alt.LayerChart:
    kinds = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    base = alt.Chart(data).encode(
        x=alt.X(f"{cost}:Q", title=title, axis=alt.Axis(format="~s")).scale(type="log"),
        y=alt.Y("error:Q", title="test error, %").scale(zero=False),
        color=alt.Color("kind:N", title=None, scale=kinds),
    )
    names = base.mark_text(align="left", dx=6, fontSize=9).encode(text="name:N")
    return (base.mark_circle(size=50) + names).properties(width=SIZE, height=SIZE)


def main() -> None:
    """Draw it."""
    PICTURE.parent.mkdir(exist_ok=True)
    draw(read()).save(PICTURE)


if __name__ == "__main__":
    main()

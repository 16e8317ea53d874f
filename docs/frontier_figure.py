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
SIZE = 300

Point = dict[str, Any]


def read() -> list[Point]:
    """Read all networks there are."""
    return json.loads(RECORD.read_text(encoding="utf-8"))["results"]


def shown(points: Sequence[Point], cost: str) -> Iterator[Point]:
    """What is drawn; a name has what no other published network beats."""
    published = [point for point in points if not point["is_ours"]]
    for point in points:
        ours = point["is_ours"]
        is_named = not ours and not any(_beats(p, point, cost) for p in published)
        kind = "diffprune" if ours else "published"
        yield {**point, "kind": kind, "name": point["name"] if is_named else ""}


def _beats(one: Point, other: Point, cost: str) -> bool:
    """Whether it is at least as good in both, and better in one."""
    pair, than = ((p[cost], p["error"]) for p in (one, other))
    return pair != than and all(a <= b for a, b in zip(pair, than, strict=True))


def draw(points: Sequence[Point]) -> alt.HConcatChart:
    """Error against weights, and against multiply-adds."""
    panels = {"weights": "weights", "macs": "multiply-adds"}
    return (
        alt.hconcat(*(_panel(points, *panel) for panel in panels.items()))
        .properties(background="white")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=13, orient="top")
    )


def _panel(points: Sequence[Point], cost: str, title: str) -> alt.LayerChart:
    data = alt.Data(values=list(shown(points, cost)))
    kinds = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    base = alt.Chart(data).encode(
        x=alt.X(f"{cost}:Q", title=title, axis=alt.Axis(format="~s")).scale(type="log"),
        y=alt.Y("error:Q", title="test error, %").scale(zero=False),
        color=alt.Color("kind:N", title=None, scale=kinds),
    )
    above = base.mark_text(align="left", dx=-4, dy=-9, fontSize=11)
    names = above.encode(text="name:N", color=alt.value("#444444"))
    return (base.mark_circle(size=50) + names).properties(width=SIZE, height=SIZE)


def main() -> None:
    """Draw it."""
    PICTURE.parent.mkdir(exist_ok=True)
    draw(read()).save(PICTURE)


if __name__ == "__main__":
    main()

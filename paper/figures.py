"""The figures of the documentation that come from the paper's records, as SVG files.

`python -m paper figures` draws them. Each file carries the Vega-Lite specification it
was drawn from, so that a test can tell whether it still is what the records say.
"""

import html
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import altair as alt

from diffprune._core.files import write_text
from diffprune.lab import Epoch, Run
from paper.records import RESULTS, ROOT, read_records
from paper.tables.comparison_table import Result, read_comparison, results
from paper.tables.frontier_table import Point, points, read_frontier
from paper.tables.wide_resnet_table import WRN_10_2

PICTURES: Final = ROOT / "docs" / "assets"
_PUBLISHED, _OURS, _SPARSE = "published", "diffprune", "diffprune, weights one by one"
_KINDS: Final = {_PUBLISHED: "#888888", _OURS: "#cc5522", _SPARSE: "#4477aa"}
_COLOURS: Final = ("#555555", "#4477aa", "#cc5522", "#99bbdd", "#eeaa88")
_NAMES: Final = WRN_10_2.labels()
_COSTS: Final = {"weights": "weights", "macs": "multiply-adds", "error": "error, %"}
_LENGTHS: Final = {
    "published": "#888888",
    "here, up to 20 epochs": "#cc5522",
    "here, 100 or 200": "#4477aa",
}
_LONG: Final = 100
_SPECIFICATION: Final = re.compile(r"<metadata>(.*?)</metadata>", re.DOTALL)

AnyChart: TypeAlias = alt.Chart | alt.HConcatChart


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What one figure of the wide ResNet shows over the epochs, and its title."""

    title: str
    value: Callable[[Run, Epoch], float]
    from_zero: bool


CURVES: Final[Mapping[str, Curve]] = {
    "wrn-accuracy.svg": Curve(
        title="(a) Test accuracy, %",
        value=lambda _, epoch: 100 - epoch.test_error,
        from_zero=False,
    ),
    "wrn-macs.svg": Curve(
        title="(b) Multiply-adds of a forward pass, millions per mini-batch",
        value=lambda run, epoch: epoch.macs * run.recipe.batch_size / 1e6,
        from_zero=True,
    ),
    "wrn-seconds.svg": Curve(
        title="(c) Seconds of the processor per training step, one thread",
        value=lambda _, epoch: epoch.processor_seconds / max(epoch.steps, 1),
        from_zero=True,
    ),
}


def charts() -> dict[str, AnyChart]:
    """Make all charts from the records, by the name of their file."""
    found = read_records(RESULTS / "wrn", "python -m paper table wrn --run")
    runs = [run for run in found if run.recipe.seed == 0 and run.recipe.name in _NAMES]
    return {
        **{name: curve_chart(curve, runs) for name, curve in CURVES.items()},
        "frontier.svg": frontier_chart(points(read_frontier(RESULTS))),
        "table1.svg": table1_chart(results(read_comparison(RESULTS))),
    }


def save(chart: AnyChart, path: Path) -> None:
    """Draw a chart as SVG, with its specification inside.

    Raises:
        StorageError: If the disk refuses; an earlier file is as it was.
    """
    chart.save(buffer := io.StringIO(), format="svg")
    opening, bracket, rest = buffer.getvalue().partition(">")
    inside = html.escape(json.dumps(specification(chart)), quote=False)
    metadata = f"<metadata>{inside}</metadata>"
    write_text(path, f"{opening}{bracket}{metadata}{rest}\n")


def specification(chart: AnyChart) -> dict[str, Any]:
    """What a chart shows, without the version of what draws it."""
    found = json.loads(chart.to_json())
    return {name: value for name, value in found.items() if name != "$schema"}


def read_specification(path: Path) -> dict[str, Any]:
    """Read the specification from a file that `save` wrote.

    Raises:
        ValueError: If there is none in it.
    """
    found = _SPECIFICATION.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"`{path}` has no specification inside")
    return json.loads(html.unescape(found[1]))


def frontier_chart(found: Sequence[Point]) -> alt.HConcatChart:
    """Draw error against weights, and against multiply-adds."""
    panels = {"weights": "weights", "macs": "multiply-adds"}
    return (
        alt.hconcat(*(_panel(found, *panel) for panel in panels.items()))
        .properties(background="white")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=13, labelLimit=240, orient="top")
    )


def frontier_rows(found: Sequence[Point], cost: str) -> Iterator[dict[str, Any]]:
    """Yield what is drawn; a name has what no other published network beats."""
    published = [point for point in found if not point.is_ours]
    for point in found:
        beaten = any(_beats(other, point, cost) for other in published)
        is_named = not point.is_ours and not beaten
        name = point.name if is_named else ""
        yield {**asdict(point), "kind": _whose(point), "name": name}


def table1_chart(found: Mapping[str, Sequence[Result]]) -> alt.HConcatChart:
    """Draw a line for every system of Table 1: what is published, what came out."""
    rows = list(table1_rows(found))
    panels = [_systems(rows, [*found], cost) for cost in _COSTS]
    return (
        alt.hconcat(*panels)
        .properties(background="white")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=13, orient="top")
    )


def table1_rows(found: Mapping[str, Sequence[Result]]) -> Iterator[dict[str, Any]]:
    """Yield what is drawn, one dictionary for every network."""
    for system, networks in found.items():
        for one in networks:
            yield {
                "system": system,
                "kind": _kind(one),
                "weights": one.widths.weights,
                "macs": one.widths.macs,
                "error": one.error,
            }


def curve_chart(curve: Curve, runs: Sequence[Run]) -> alt.Chart:
    """Draw a line for every run."""
    data = list(curve_rows(curve, runs))
    epochs = sorted({point["epoch"] for point in data})
    shown = [_NAMES[name] for name in _NAMES if _has(runs, name)]
    kinds = alt.Scale(domain=shown, range=list(_COLOURS[: len(shown)]))
    ticks = alt.Axis(values=epochs, format="d", grid=False, title="epoch")
    return (
        alt.Chart(alt.Data(values=data), title=curve.title)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=30))
        .encode(
            x=alt.X("epoch:Q", axis=ticks).scale(domain=[epochs[0], epochs[-1]]),
            y=alt.Y("value:Q", title=None).scale(zero=curve.from_zero),
            color=alt.Color("run:N", title=None, scale=kinds),
        )
        .properties(width=520, height=260, background="white")
        .configure_view(stroke=None)
        .configure_title(anchor="start", fontSize=14, fontWeight="normal", offset=12)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=13, symbolStrokeWidth=2)
    )


def curve_rows(curve: Curve, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield what is drawn, one dictionary for every run and epoch."""
    for run in runs:
        for epoch in run.epochs:
            yield {
                "run": _NAMES[run.recipe.name],
                "epoch": epoch.number,
                "value": curve.value(run, epoch),
            }


def _has(runs: Sequence[Run], name: str) -> bool:
    return any(run.recipe.name == name for run in runs)


def _beats(one: Point, other: Point, cost: str) -> bool:
    """Whether it is at least as good in both, and better in one."""
    pair, than = ((getattr(p, cost), p.error) for p in (one, other))
    return pair != than and all(a <= b for a, b in zip(pair, than, strict=True))


def _panel(
    found: Sequence[Point], cost: str, title: str
) -> alt.FacetChart | alt.LayerChart:
    data = alt.Data(values=list(frontier_rows(found, cost)))
    kinds = alt.Scale(domain=list(_KINDS), range=list(_KINDS.values()))
    base = alt.Chart(data).encode(
        x=alt.X(f"{cost}:Q", title=title, axis=alt.Axis(format="~s")).scale(type="log"),
        y=alt.Y("error:Q", title="test error, %").scale(zero=False),
        color=alt.Color("kind:N", title=None, scale=kinds),
    )
    above = base.mark_text(align="left", dx=-4, dy=-9, fontSize=11)
    names = above.encode(text="name:N", color=alt.value("#444444"))
    return (base.mark_circle(size=50) + names).properties(width=300, height=300)


def _whose(point: Point) -> str:
    if not point.is_ours:
        return _PUBLISHED
    return _SPARSE if point.weights < point.tensors else _OURS


def _kind(one: Result) -> str:
    published, short, long = _LENGTHS
    if one.where == published:
        return published
    return long if one.epochs >= _LONG else short


def _systems(
    rows: Sequence[Mapping[str, Any]], systems: Sequence[str], cost: str
) -> alt.Chart:
    colours = alt.Scale(domain=[*_LENGTHS], range=[*_LENGTHS.values()])
    names = alt.Axis(grid=True, labels=cost == "weights")
    axis = alt.Axis(format="~g" if cost == "error" else "~s", tickCount=5)
    return (
        alt.Chart(alt.Data(values=[*rows]))
        .mark_circle(size=70, opacity=0.8)
        .encode(
            x=alt.X(f"{cost}:Q", title=_COSTS[cost], axis=axis).scale(type="log"),
            y=alt.Y("system:N", title=None, sort=[*systems], axis=names),
            color=alt.Color("kind:N", title=None, scale=colours),
        )
        .properties(width=210, height=340)
    )

"""Rows as Vega-Lite plots of what came out. Plots name their data and hold none of it.

`run` is a parameter that the page sets: which run plots of a single run show.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import altair as alt

from diffprune.lab.report import theme
from diffprune.lab.report.rows import STATES

Spec = dict[str, Any]
Layers = alt.LayerChart | alt.FacetChart
"""What altair says it makes of layers; it is always the first."""
_FEW_POINTS: Final = 6
"""Of one kind; points of larger kinds have names in tooltips alone."""
_SHAPES: Final = ("circle", "diamond", "cross", "square", "triangle-up")
_LABEL_WIDTH: Final = 96
_BAR_HEIGHT: Final = 38
_SHARE_HEIGHT: Final = 24
_ROW_HEIGHT: Final = 46


def architecture(gates: Sequence[str], states: tuple[str, str], run: str) -> Spec:
    """Every gate as a bar, before and after, one upon the other."""
    base = (
        alt.Chart(alt.NamedData("architecture"))
        .transform_filter("datum.run === run")
        .encode(
            y=alt.Y("gate:N", sort=list(gates), title=None, axis=theme.NAMES).scale(
                padding=0.3
            )
        )
    )
    bars = base.mark_bar(cornerRadius=3).encode(
        x=alt.X("left:Q", axis=None).scale(nice=False),
        x2="right:Q",
        color=alt.Color("state:N")
        .scale(domain=list(states), range=[theme.FAINT, theme.ACCENT])
        .legend(symbolType="square"),
        order=alt.Order("units:Q", sort="descending"),
        tooltip=[
            alt.Tooltip("gate:N", title="Gate"),
            alt.Tooltip("state:N", title="When"),
            alt.Tooltip("units:Q", title="Units", format=","),
        ],
    )
    labels = (
        base.transform_filter(alt.FieldEqualPredicate(field="state", equal=states[1]))
        .mark_text(align="right", fontSize=13, fontWeight=600)
        .encode(x=alt.value(alt.expr(f"width + {_LABEL_WIDTH}")), text="label:N")
    )
    chart = alt.layer(bars, labels).add_params(alt.param(name="run", value=run))
    return finished(chart.properties(height=_BAR_HEIGHT * len(gates)))


def network(lanes: int, rows: int, run: str) -> Spec:
    """Layers as blocks from top to bottom, joined by lines; branches beside each other.

    Args:
        lanes: Branches beside each other, at most.
        rows: Blocks below each other, at most.
        run: Whose network is shown first.
    """
    x = alt.Scale(domain=[-0.6, lanes - 0.4], nice=False)
    y = alt.Scale(domain=[rows - 0.4, -0.6], nice=False)
    lines = (
        alt.Chart(alt.NamedData("edges"))
        .mark_line(interpolate="basis", color=theme.MUTED, strokeWidth=1.2)
        .encode(
            x=alt.X("x:Q", axis=None, scale=x),
            y=alt.Y("y:Q", axis=None, scale=y),
            detail="edge:N",
            order="order:O",
        )
    )
    base = (
        alt.Chart(alt.NamedData("blocks"))
        .transform_filter("datum.run === run")
        .transform_calculate(top="datum.row - 0.16", foot="datum.row + 0.16")
        .encode(
            tooltip=[
                alt.Tooltip("name:N", title="Layer"),
                alt.Tooltip("before:Q", title="Units before", format=","),
                alt.Tooltip("after:Q", title="Units after", format=","),
            ]
        )
    )
    layers = base.transform_filter("datum.before !== null")
    chart = alt.layer(
        lines,
        _blocks(layers, "old", theme.FAINT),
        _blocks(layers, "new", theme.ACCENT),
        _joins(base),
        _block_names(layers, "name", align="right", dx=-6),
        _block_names(layers, "label", align="left", dx=6, fontWeight=600),
    )
    chart = chart.add_params(alt.param(name="run", value=run))
    return finished(chart.properties(height=_ROW_HEIGHT * rows))


def _blocks(base: alt.Chart, half: str, color: str) -> alt.Chart:
    sides = {
        f"{half}_left": f"datum.lane - datum.{half}",
        f"{half}_right": f"datum.lane + datum.{half}",
    }
    return (
        base.transform_calculate(**sides)
        .mark_rect(cornerRadius=3, color=color)
        .encode(x=f"{half}_left:Q", x2=f"{half}_right:Q", y="top:Q", y2="foot:Q")
    )


def _joins(base: alt.Chart) -> Layers:
    joins = base.transform_filter("datum.before === null").encode(x="lane:Q", y="row:Q")
    dots = joins.mark_point(
        shape="circle", filled=True, size=50, color=theme.MUTED, opacity=1
    )
    names = joins.mark_text(align="left", dx=8, dy=-7, color=theme.MUTED).encode(
        text="name:N"
    )
    return alt.layer(dots, names)


def _block_names(base: alt.Chart, text: str, **style: Any) -> alt.Chart:  # noqa: ANN401 - of text
    return base.mark_text(dy=-15, fontSize=11, limit=150, **style).encode(
        x="lane:Q", y="row:Q", text=f"{text}:N"
    )


def shares(cost: str, layers: Sequence[str], run: str) -> Spec:
    """What every layer costs of the whole network before, and what of that is left."""
    base = (
        alt.Chart(alt.NamedData("shares"))
        .transform_filter("datum.run === run")
        .transform_filter(alt.FieldEqualPredicate(field="cost", equal=cost))
        .encode(y=alt.Y("layer:N", sort=list(layers), title=None, axis=theme.NAMES))
    )
    bars = base.mark_bar(cornerRadius=2).encode(
        x=alt.X("share:Q", title=None, stack=None).axis(format="%", tickCount=4),
        color=alt.Color("state:N")
        .scale(domain=list(STATES), range=[theme.FAINT, theme.ACCENT])
        .legend(symbolType="square"),
        order=alt.Order("share:Q", sort="descending"),
        tooltip=[
            alt.Tooltip("layer:N", title="Layer"),
            alt.Tooltip("state:N", title="When"),
            alt.Tooltip("count:Q", title="Number", format=","),
            alt.Tooltip("share:Q", title="Of the whole before", format=".1%"),
        ],
    )
    labels = (
        base.transform_filter(alt.FieldEqualPredicate(field="state", equal=STATES[1]))
        .mark_text(align="right", fontSize=12)
        .encode(x=alt.value(alt.expr(f"width + {_LABEL_WIDTH}")), text="label:N")
    )
    chart = alt.layer(bars, labels).add_params(alt.param(name="run", value=run))
    return finished(chart.properties(height=_SHARE_HEIGHT * len(layers)))


def front(cost: str, title: str, kinds: Mapping[str, int]) -> Spec:
    """Error against one cost: this report's networks, and references.

    Networks that none of their kind beats are joined by a line.

    Args:
        cost: Its name in rows.
        title: Its name for people.
        kinds: Points of every kind, by its name.
    """
    colors = theme.series(len(kinds))
    shapes = [_SHAPES[number % len(_SHAPES)] for number in range(len(kinds))]
    named = [kind for kind, count in kinds.items() if count <= _FEW_POINTS]
    base = alt.Chart(alt.NamedData("front")).encode(
        x=alt.X(f"{cost}:Q", title=title)
        .scale(type="log", nice=False, padding=28)
        .axis(format="~s", values=theme.DECADES),
        y=alt.Y("error:Q", title="Test error, %").scale(zero=False, padding=20),
    )
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=alt.Color("kind:N").scale(domain=list(kinds), range=colors),
        shape=alt.Shape("kind:N").scale(domain=list(kinds), range=shapes),
        tooltip=[
            alt.Tooltip("name:N", title="Network"),
            alt.Tooltip("architecture:N", title="Architecture"),
            alt.Tooltip("error:Q", title="Test error, %", format=".2f"),
            alt.Tooltip("macs:Q", title="Multiply-adds", format=","),
            alt.Tooltip("parameters:Q", title="Parameters", format=","),
            alt.Tooltip("source:N", title="Source"),
        ],
    )
    labels = (
        base.transform_filter(alt.FieldOneOfPredicate(field="kind", oneOf=named))
        .mark_text(dy=-14)
        .encode(text="name:N")
    )
    fronts = (
        base.transform_filter(alt.FieldEqualPredicate(field=f"best_{cost}", equal=True))
        .mark_line(interpolate="step-after", color=theme.FAINT)
        .encode(detail="kind:N")
    )
    chart = alt.layer(fronts, points, labels).properties(height=320)
    return finished(chart, legend=kinds)


def finished(chart: Layers, *, legend: Iterable[str] = ()) -> Spec:
    """As wide as its frame, and without the configuration that all plots share.

    Args:
        chart: What is drawn.
        legend: Its entries; the page puts as many side by side as there is room for.
    """
    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    spec = chart.properties(width="container", autosize=fit).to_dict()
    own = {k: v for k, v in spec.items() if k not in ("$schema", "config")}
    return own | {"usermeta": {"labelWidth": theme.label_width(legend)}}

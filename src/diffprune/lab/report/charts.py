"""Rows as Vega-Lite plots of what came out. Plots name their data and hold none of it.

`run` is a parameter that the page sets: which run plots of a single run show.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import altair as alt

from diffprune.lab.report import theme

Spec = dict[str, Any]
Layers = alt.LayerChart | alt.FacetChart
"""What altair says it makes of layers; it is always the first."""
_FEW_POINTS: Final = 6
"""Of one kind; points of larger kinds have names in tooltips alone."""
_SHAPES: Final = ("circle", "diamond", "cross", "square", "triangle-up")
_LABEL_WIDTH: Final = 96
_BAR_HEIGHT: Final = 38


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

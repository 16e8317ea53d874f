"""Rows as Vega-Lite plots of what came out. Plots name their data and hold none of it.

`run` is a parameter that the page sets: which run plots of a single run show.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import altair as alt

from diffprune.lab.report import theme

Spec = dict[str, Any]
Layers = alt.LayerChart | alt.FacetChart
"""What altair says it makes of layers; it is always the first."""
KINDS: Final = ("your runs", "the paper", "others, published")
"""Of networks in plots of error against cost."""
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


def front(cost: str, title: str) -> Spec:
    """Error against one cost: this report's networks, and published ones.

    Networks that none of their group beats are joined by a line.
    """
    colors = [theme.ACCENT, theme.SERIES[1], theme.MUTED]
    base = alt.Chart(alt.NamedData("front")).encode(
        x=alt.X(f"{cost}:Q", title=title)
        .scale(type="log", nice=False, padding=28)
        .axis(format="~s", values=theme.DECADES),
        y=alt.Y("error:Q", title="Test error, %").scale(zero=False, padding=20),
    )
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=alt.Color("kind:N").scale(domain=list(KINDS), range=colors),
        shape=alt.Shape("kind:N").scale(
            domain=list(KINDS), range=["circle", "diamond", "cross"]
        ),
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
        base.transform_filter(
            alt.FieldOneOfPredicate(field="kind", oneOf=list(KINDS[:2]))
        )
        .mark_text(dy=-14)
        .encode(text="name:N")
    )
    fronts = (
        base.transform_filter(alt.FieldEqualPredicate(field=f"best_{cost}", equal=True))
        .mark_line(interpolate="step-after", color=theme.FAINT)
        .encode(detail="group:N")
    )
    chart = alt.layer(fronts, points, labels).properties(height=320)
    return finished(chart, legend=KINDS)


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

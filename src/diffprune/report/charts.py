"""Rows as Vega-Lite plots. They name their data and hold none of it.

Plots over epochs share one parameter, `epoch`: the page sets it in all of them when the
pointer moves over one. `run` says which run plots of a single run show.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt

from diffprune.report import theme

Spec = dict[str, Any]
_HEIGHT = 220


def error_curves(runs: Sequence[str], dense: Sequence[str], last: int) -> Spec:
    """Test error of every run, over epochs."""
    y = alt.Y("test:Q", title=None, scale=alt.Scale(type="sqrt", zero=False))
    return _curves(y, _run_color(runs, dense), last, "Test error, %", ".2f")


def mac_curves(runs: Sequence[str], dense: Sequence[str], last: int) -> Spec:
    """Multiply-adds of every run, over epochs."""
    y = alt.Y("macs:Q", title=None, axis=alt.Axis(format="~s", tickCount=5))
    return _curves(y, _run_color(runs, dense), last, "Multiply-adds", ",")


def pace_curves(
    runs: Sequence[str], dense: Sequence[str], last: int, *, title: str
) -> Spec:
    """Seconds of every run, over epochs."""
    y = alt.Y("seconds:Q", title=None, axis=alt.Axis(format="~s", tickCount=5))
    return _curves(y, _run_color(runs, dense), last, title, ".3~s")


def width_curves(gates: Sequence[str], run: str, last: int) -> Spec:
    """Units that every gate of one run has left, over epochs."""
    few = len(gates) <= len(theme.SERIES)
    scale = alt.Scale(domain=list(gates), range=theme.series(len(gates)))
    color = (
        alt.Color("gate:N", scale=scale, legend=alt.Legend())
        if few
        else alt.value(theme.ACCENT)
    )
    y = alt.Y("share:Q", title=None, axis=alt.Axis(format="%", tickCount=5))
    tooltip = [
        alt.Tooltip("gate:N", title="Gate"),
        alt.Tooltip("epoch:Q", title="Epoch"),
        alt.Tooltip("units:Q", title="Units", format=","),
        alt.Tooltip("share:Q", title="Left", format=".1%"),
    ]
    base = alt.Chart(alt.NamedData("widths")).transform_filter("datum.run === run")
    chart = _linked(base, y, color, "gate:N", tooltip, last)
    return _finished(chart.add_params(alt.param(name="run", value=run)))


def gate_heatmap(gate: str, run: str, last: int) -> Spec:
    """How the open probabilities of one gate spread, over epochs."""
    epoch = alt.param(name="epoch", value=last)
    hover = alt.selection_point(
        name="hover", fields=["epoch"], on="pointermove", empty=False
    )
    base = (
        alt.Chart(alt.NamedData("gates"))
        .transform_filter("datum.run === run")
        .transform_filter(alt.FieldEqualPredicate(field="gate", equal=gate))
    )
    x = alt.X(
        "start:Q",
        title="Epoch",
        scale=alt.Scale(domain=[0.5, last + 0.5], nice=False),
        axis=alt.Axis(tickMinStep=1, tickCount=5, format="d"),
    )
    y = alt.Y(
        "low:Q",
        title=None,
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(values=[0, 0.5, 1], format="%"),
    )
    cells = base.mark_rect(color=theme.ACCENT).encode(
        x=x,
        x2="stop:Q",
        y=y,
        y2="high:Q",
        opacity=alt.Opacity(
            "share:Q", legend=None, scale=alt.Scale(type="sqrt", domain=[0, 1])
        ),
        tooltip=[
            alt.Tooltip("epoch:Q", title="Epoch"),
            alt.Tooltip("low:Q", title="From", format=".0%"),
            alt.Tooltip("high:Q", title="To", format=".0%"),
            alt.Tooltip("count:Q", title="Units", format=","),
        ],
    )
    rule = _rule(base, alt.X("epoch:Q"))
    chart = alt.layer(cells.add_params(hover), rule).add_params(
        epoch, alt.param(name="run", value=run)
    )
    return _finished(chart.properties(height=120))


def architecture(gates: Sequence[str], states: tuple[str, str], run: str) -> Spec:
    """Every gate as a bar, before and after, one upon the other."""
    base = (
        alt.Chart(alt.NamedData("architecture"))
        .transform_filter("datum.run === run")
        .encode(
            y=alt.Y(
                "gate:N",
                sort=list(gates),
                title=None,
                axis=alt.Axis(labelColor=theme.INK, labelFontSize=13, grid=False),
                scale=alt.Scale(padding=0.3),
            )
        )
    )
    bars = base.mark_bar(cornerRadius=3).encode(
        x=alt.X("left:Q", axis=None),
        x2="right:Q",
        color=alt.Color(
            "state:N",
            scale=alt.Scale(domain=list(states), range=[theme.FAINT, theme.ACCENT]),
            legend=alt.Legend(symbolType="square"),
        ),
        order=alt.Order("units:Q", sort="descending"),
        tooltip=[
            alt.Tooltip("gate:N", title="Gate"),
            alt.Tooltip("state:N", title="When"),
            alt.Tooltip("units:Q", title="Units", format=","),
        ],
    )
    labels = (
        base.transform_filter(alt.FieldEqualPredicate(field="state", equal=states[1]))
        .mark_text(align="right", dx=-4, fontSize=13, fontWeight=600)
        .encode(x=alt.value("width"), text="label:N")
    )
    chart = alt.layer(bars, labels).add_params(alt.param(name="run", value=run))
    return _finished(chart.properties(height=alt.Step(38)))


def front(cost: str, title: str) -> Spec:
    """Error against one cost: this report's networks, and published ones."""
    kinds = ["your runs", "the paper", "others, published"]
    base = alt.Chart(alt.NamedData("front")).encode(
        x=alt.X(
            f"{cost}:Q",
            title=title,
            scale=alt.Scale(type="log", nice=False, padding=24),
            axis=alt.Axis(format="~s", tickCount=4),
        ),
        y=alt.Y("error:Q", title="Test error, %", scale=alt.Scale(zero=False)),
    )
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(
                domain=kinds, range=[theme.SERIES[0], theme.SERIES[1], theme.MUTED]
            ),
            legend=alt.Legend(),
        ),
        shape=alt.Shape(
            "kind:N",
            scale=alt.Scale(domain=kinds, range=["circle", "diamond", "cross"]),
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
        base.transform_filter(alt.FieldOneOfPredicate(field="kind", oneOf=kinds[:2]))
        .mark_text(dy=-14)
        .encode(text="name:N")
    )
    return _finished(alt.layer(points, labels).properties(height=320))


def _curves(y: alt.Y, color: alt.Color, last: int, title: str, number: str) -> Spec:
    field = str(y.to_dict()["field"])
    tooltip = [
        alt.Tooltip("run:N", title="Run"),
        alt.Tooltip("epoch:Q", title="Epoch"),
        alt.Tooltip(f"{field}:Q", title=title, format=number),
    ]
    base = alt.Chart(alt.NamedData("epochs"))
    return _finished(_linked(base, y, color, "run:N", tooltip, last))


def _linked(
    base: alt.Chart,
    y: alt.Y,
    color: alt.Color | dict[str, Any],
    detail: str,
    tooltip: list[alt.Tooltip],
    last: int,
) -> alt.LayerChart:
    """Lines over epochs, with a rule and dots at the epoch of the page."""
    x = alt.X(
        "epoch:Q",
        title="Epoch",
        scale=alt.Scale(domain=[min(1, last - 1), last], nice=False),
        axis=alt.Axis(tickMinStep=1, tickCount=6, format="d"),
    )
    hover = alt.selection_point(
        name="hover", fields=["epoch"], nearest=True, on="pointermove", empty=False
    )
    curves = base.encode(x=x, y=y, color=color, detail=detail)
    lines = curves.mark_line()
    dots = curves.transform_filter("datum.epoch === epoch").mark_point(
        filled=True, size=60, opacity=1, stroke=theme.PAPER, strokeWidth=1.5
    )
    catch = curves.mark_point(opacity=0, size=60).encode(tooltip=tooltip)
    return alt.layer(_rule(base, x), lines, dots, catch.add_params(hover)).add_params(
        alt.param(name="epoch", value=last)
    )


def _rule(base: alt.Chart, x: alt.X) -> alt.Chart:
    return (
        base.transform_filter("datum.epoch === epoch")
        .transform_aggregate(groupby=["epoch"])
        .mark_rule(color=theme.MUTED, strokeDash=[3, 3])
        .encode(x=x)
    )


def _run_color(runs: Sequence[str], dense: Sequence[str]) -> alt.Color:
    gated = [run for run in runs if run not in dense]
    colors = dict(zip(gated, theme.series(len(gated)), strict=True))
    scale = alt.Scale(
        domain=list(runs), range=[colors.get(run, theme.DENSE) for run in runs]
    )
    return alt.Color("run:N", scale=scale, legend=alt.Legend())


def _finished(chart: alt.Chart | alt.LayerChart) -> Spec:
    """Filled into its frame, and without the configuration that all plots share."""
    if "height" not in chart.to_dict(validate=False):
        chart = chart.properties(height=_HEIGHT)
    spec = chart.properties(width="container").to_dict()
    spec.pop("config", None)
    return spec

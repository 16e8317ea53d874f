"""Rows as Vega-Lite plots over epochs, linked with each other.

They share a parameter, `epoch`: a rule stands there, and the page sets it in all of
them when the pointer moves over one. `run` says which run plots of a single run show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from diffprune.lab.report import theme
from diffprune.lab.report.charts import Layers, Spec, finished
from diffprune.lab.report.rows import BINS


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Something that every run has in every epoch.

    Attributes:
        field: Its name in rows.
        title: Its name for people.
        digits: How it is written, in the language of d3.
        axis: The same on the axis.
        scale: What distances on the axis mean.
    """

    field: str
    title: str
    digits: str
    axis: str = "~s"
    scale: Literal["linear", "log", "sqrt"] = "linear"


def run_curves(quantity: Quantity, colors: Mapping[str, str], last: int) -> Spec:
    """One line per run.

    Args:
        quantity: What is plotted.
        colors: By run.
        last: The last epoch of any run.
    """
    is_log = quantity.scale == "log"
    ticks: dict[str, Any] = {"values": theme.DECADES} if is_log else {"tickCount": 5}
    base = alt.Chart(alt.NamedData("epochs"))
    lines = base.encode(
        y=alt.Y(f"{quantity.field}:Q", title=None)
        .scale(type=quantity.scale, nice=not is_log)
        .axis(format=quantity.axis, **ticks),
        color=_color("run", colors),
    )
    tooltip = _Tooltip(quantity.field, quantity.digits, tuple(colors))
    return finished(_linked(base, lines, tooltip, last), legend=colors)


def width_curves(gates: Sequence[str], run: str, last: int) -> Spec:
    """Units that every gate of one run has left; too many gates share one colour."""
    colors = dict(zip(gates, theme.series(len(gates)), strict=True))
    is_told_apart = len(gates) <= len(theme.SERIES)
    base = alt.Chart(alt.NamedData("widths")).transform_filter("datum.run === run")
    lines = base.encode(
        y=alt.Y("share:Q", title=None)
        .scale(domain=[0, 1])
        .axis(format="%", tickCount=5),
        color=_color("gate", colors) if is_told_apart else alt.value(theme.ACCENT),
        detail="gate:N",
    )
    chosen = alt.param(name="run", value=run)
    tooltip = _Tooltip("units", ",", tuple(gates))
    chart = _linked(base, lines, tooltip, last).add_params(chosen)
    return finished(chart, legend=gates)


def gate_heatmap(gate: str, run: str, *, lowest: float, last: int) -> Spec:
    """How the open probabilities of one gate spread; the axis starts at `lowest`."""
    base = (
        alt.Chart(alt.NamedData("gates"))
        .transform_filter("datum.run === run")
        .transform_filter(alt.FieldEqualPredicate(field="gate", equal=gate))
    )
    cells = (
        base.transform_joinaggregate(units="sum(count)", groupby=["epoch"])
        .transform_calculate(
            start="datum.epoch - 0.5",
            stop="datum.epoch - 0.5 + datum.epochs",
            low=f"datum.bin / {BINS}",
            high=f"(datum.bin + 1) / {BINS}",
            share="datum.count / datum.units",
        )
        .mark_rect(color=theme.ACCENT)
        .encode(
            x=alt.X("start:Q", title="Epoch")
            .scale(domain=[0.5, last + 0.5], nice=False)
            .axis(tickMinStep=1, tickCount=6, format="d"),
            x2="stop:Q",
            y=alt.Y("low:Q", title=None)
            .scale(domain=[lowest, 1])
            .axis(values=[0, 0.25, 0.5, 0.75, 1], format="%"),
            y2="high:Q",
            opacity=alt.Opacity("share:Q", legend=None).scale(
                type="sqrt", domain=[0, 0.5], range=[0.08, 1], clamp=True
            ),
            tooltip=[
                alt.Tooltip("epoch:Q", title="Epoch"),
                alt.Tooltip("low:Q", title="Open, from", format=".1%"),
                alt.Tooltip("high:Q", title="to", format=".1%"),
                alt.Tooltip("count:Q", title="Units", format=","),
            ],
        )
    )
    chart = alt.layer(cells.add_params(_hover(nearest=False)), _rule(base, "epoch:Q"))
    parameters = _epoch(last), alt.param(name="run", value=run)
    return finished(chart.add_params(*parameters).properties(height=140))


@dataclass(frozen=True)
class _Tooltip:
    """One value of every series at an epoch; rows call the series 0, 1, and so on."""

    field: str
    digits: str
    series: tuple[str, ...]

    def encode(self) -> list[alt.Tooltip]:
        values = [
            alt.Tooltip(f"{index}:Q", title=name, format=self.digits)
            for index, name in enumerate(self.series)
        ]
        return [alt.Tooltip("epoch:Q", title="Epoch"), *values]


def _linked(base: alt.Chart, lines: alt.Chart, tooltip: _Tooltip, last: int) -> Layers:
    """Lines over epochs, with a rule and dots at the epoch of the page."""
    x = (
        alt.X("epoch:Q", title="Epoch")
        .scale(domain=[min(1, last - 1), last], nice=False)
        .axis(tickMinStep=1, tickCount=6, format="d")
    )
    lines = lines.encode(x=x)
    dots = lines.transform_filter("datum.epoch === epoch").mark_point(
        filled=True, size=64, opacity=1, stroke=theme.PAPER, strokeWidth=1.5
    )
    # Seen by the pointer alone: the nearest epoch answers wherever it is.
    targets = (
        base.transform_pivot("index", value=tooltip.field, groupby=["epoch"])
        .mark_rule(opacity=0)
        .encode(x=x, tooltip=tooltip.encode())
        .add_params(_hover(nearest=True))
    )
    chart = alt.layer(_rule(base, x), lines.mark_line(), dots, targets)
    return chart.add_params(_epoch(last)).properties(height=220)


def _rule(base: alt.Chart, x: alt.X | str) -> alt.Chart:
    return (
        base.transform_filter("datum.epoch === epoch")
        .transform_aggregate(groupby=["epoch"])
        .mark_rule(color=theme.MUTED, strokeDash=[3, 3])
        .encode(x=x)
    )


def _epoch(last: int) -> alt.Parameter:
    return alt.param(name="epoch", value=last)


def _hover(*, nearest: bool) -> alt.Parameter:
    return alt.selection_point(
        name="hover", fields=["epoch"], nearest=nearest, on="pointermove", empty=False
    )


def _color(field: str, colors: Mapping[str, Any]) -> alt.Color:
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    return alt.Color(f"{field}:N", scale=scale)

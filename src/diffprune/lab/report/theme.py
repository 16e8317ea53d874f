"""How plots look: fonts, lines, and colours that follow the page.

Colours are CSS variables, which `style.css` sets for light, dark and paper. The series
follow Okabe and Ito: told apart also by people who do not see all colours.
"""

from collections.abc import Iterable
from typing import Any, Final

INK: Final = "var(--ink)"
MUTED: Final = "var(--muted)"
FAINT: Final = "var(--faint)"
PAPER: Final = "var(--paper)"
DENSE: Final = "var(--dense)"
SERIES: Final = tuple(f"var(--series-{number})" for number in range(1, 7))
ACCENT: Final = SERIES[0]

NAMES: Final[dict[str, Any]] = {
    "labelColor": INK,
    "labelFontSize": 13,
    "labelLimit": 160,
    "grid": False,
}
"""An axis of names."""

CONFIG: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": "var(--line)",
        "labelColor": MUTED,
        "labelFontSize": 12,
        "labelPadding": 8,
        "titleColor": MUTED,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 10,
    },
    "axisX": {"grid": False},
    "legend": {
        "orient": "top",
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": 200,
        "title": None,
        "columnPadding": 16,
        "padding": 0,
        "offset": 12,
    },
    "line": {"strokeWidth": 2},
    "text": {"fill": INK, "fontSize": 12},
}


DECADES: Final = [step * 10.0**power for power in range(-2, 13) for step in (1, 2, 5)]
"""Where a logarithmic axis has its ticks, as far as it has these numbers."""


def label_width(names: Iterable[str]) -> int:
    """What the widest entry of a legend takes, in pixels, roughly."""
    return 32 + round(6.6 * max(map(len, names), default=0))


def series(count: int) -> list[str]:
    """So many colours; they repeat if there are not enough."""
    return [SERIES[index % len(SERIES)] for index in range(count)]

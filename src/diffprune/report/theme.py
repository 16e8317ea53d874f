"""How plots look: fonts, lines, and colours that follow the page; knows no data.

Colours are CSS variables, which `style.css` sets for light, dark and paper. The series
follow Okabe and Ito: told apart by people who do not see all colours.
"""

from typing import Any, Final

ACCENT: Final = "var(--series-1)"
INK: Final = "var(--ink)"
MUTED: Final = "var(--muted)"
FAINT: Final = "var(--faint)"
PAPER: Final = "var(--paper)"
DENSE: Final = "var(--dense)"
SERIES: Final = tuple(f"var(--series-{number})" for number in range(1, 7))

CONFIG: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "padding": 2,
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
        "labelLimit": 240,
        "title": None,
        "symbolStrokeWidth": 2.5,
        "columnPadding": 16,
        "padding": 0,
        "offset": 12,
    },
    "line": {"strokeWidth": 2, "interpolate": "monotone"},
    "text": {"fill": INK, "fontSize": 12},
}


def series(count: int) -> list[str]:
    """So many colours; the last ones repeat if there are not enough."""
    return [SERIES[index % len(SERIES)] for index in range(count)]

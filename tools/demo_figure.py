"""Draw how the demo's network shrinks, from its record to plain SVG.

`python -m tools.demo_figure` reads results/demo/seed-0-metrics.jsonl and writes
docs/assets/demo.svg. The record is what `diffprune demo --seed 0` leaves in
runs/demo/pruned/metrics.jsonl, without the open probability of every unit.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._command import command

ROOT = Path(__file__).parent.parent
METRICS = ROOT / "results" / "demo" / "seed-0-metrics.jsonl"
PICTURE = ROOT / "docs" / "assets" / "demo.svg"

LAYERS = {"conv1": 20, "conv2": 50, "fc1": 500}
COLOURS = ("#4a86c5", "#2f9a45", "#c0579a")
"""Told apart, and legible on light and on dark."""
STYLE = (
    "<style>.paper{fill:#fff}.ink{fill:#333}.line{stroke:#ddd}"
    "@media(prefers-color-scheme:dark)"
    "{.paper{fill:#1e2129}.ink{fill:#d5dae3}.line{stroke:#3b4250}}</style>"
)
WIDTH, HEIGHT = 720, 330
LEFT, RIGHT, TOP, BOTTOM = 60, 590, 50, 280


@dataclass(frozen=True)
class Epoch:
    """Units that are still open after an epoch."""

    number: int
    widths: Sequence[int]


def read(metrics: Path) -> list[Epoch]:
    """The epochs of the pruned network, with the whole one before the first."""
    lines = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    widths = [(line["number"], line["raw"]) for line in lines]
    return [
        Epoch(0, list(LAYERS.values())),
        *(Epoch(n, [left[name] for name in LAYERS]) for n, left in widths),
    ]


def draw(epochs: Sequence[Epoch]) -> str:
    """One line for every layer: the percentage of its units that are open."""
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
            STYLE,
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
            _text(LEFT, 25, "LeNet-5 on handwritten digits: open units, in %"),
            *_frame(epochs[-1].number),
            *_curves(epochs),
            "</svg>\n",
        ]
    )


def _frame(last: int) -> Iterable[str]:
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent)
        yield f'<path d="M{LEFT} {y}H{RIGHT}" class="line"/>'
        yield _text(LEFT - 8, y + 4, str(percent), anchor="end")
    for number in range(0, last + 1, 5):
        yield _text(_x(number, last), BOTTOM + 20, str(number), anchor="middle")
    yield _text((LEFT + RIGHT) / 2, BOTTOM + 40, "epoch", anchor="middle")


def _curves(epochs: Sequence[Epoch]) -> Iterable[str]:
    whole, last = epochs[0].widths, epochs[-1]
    ends = [100 * last.widths[i] / whole[i] for i in range(len(LAYERS))]
    heights = _apart([_y(end) for end in ends], 18)
    for i, (layer, colour) in enumerate(zip(LAYERS, COLOURS, strict=True)):
        points = " ".join(
            f"{_x(e.number, last.number):.1f},{_y(100 * e.widths[i] / whole[i]):.1f}"
            for e in epochs
        )
        line = f'fill="none" stroke="{colour}" stroke-width="2"'
        yield f'<polyline points="{points}" {line}/>'
        label = f"{layer}: {last.widths[i]} of {whole[i]}"
        yield _text(RIGHT + 8, heights[i], label, colour=colour)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Move labels up until none covers the one below it."""
    moved = list(heights)
    below = float("inf")
    for i in sorted(range(len(moved)), key=lambda i: -moved[i]):
        below = moved[i] = min(moved[i] + 4, below - gap)
    return moved


def _x(number: int, last: int) -> float:
    return LEFT + (RIGHT - LEFT) * number / last


def _y(percent: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * percent / 100


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", colour: str | None = None
) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    look = 'class="ink"' if colour is None else f'fill="{colour}"'
    return f"<text {where} {look}>{text}</text>"


if __name__ == "__main__":
    command(__doc__).parse_args()
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(read(METRICS)), encoding="utf-8")
    sys.stdout.write(f"Written to {PICTURE.relative_to(ROOT)}.\n")

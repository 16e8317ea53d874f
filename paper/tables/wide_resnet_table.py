"""Section 4.2 of the paper next to our small runs: from runs to a table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from diffprune.lab import Epoch, Recipe, Run
from diffprune.lab.formatting import architecture, short
from paper.recipes import small_wrn_dense, small_wrn_high, small_wrn_low

Widths = Sequence[Sequence[tuple[int, int]]]
"""By group and block: hidden units, and those of the sum."""

WHOLE: Final[Widths] = tuple(((n, n),) * 4 for n in (160, 320, 640))
PRINTED: Final[Mapping[str, Widths]] = {
    "low": (
        ((133, 122), (148, 105), (137, 101), (106, 58)),
        ((301, 255), (316, 248), (310, 240), (318, 214)),
        ((618, 543), (624, 578), (620, 600), (615, 635)),
    ),
    "high": (
        ((127, 120), (137, 112), (139, 102), (113, 61)),
        ((286, 230), (296, 235), (289, 238), (304, 231)),
        ((148, 180), (162, 165), (167, 143), (153, 169)),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A result of section 4.2, and our small run of the same kind."""

    name: str
    widths: Widths
    error: float
    recipe: Callable[[int], Recipe]


ROWS: Final = (
    # Printed as 0.42 %: the network is known to make 4.17 % errors.
    Row(name="original", widths=WHOLE, error=4.2, recipe=small_wrn_dense),
    Row(name="low", widths=PRINTED["low"], error=4.2, recipe=small_wrn_low),
    Row(name="high", widths=PRINTED["high"], error=4.5, recipe=small_wrn_high),
)


def wide_macs(widths: Widths) -> int:
    """Multiply-adds for one image, if the widths are exactly these.

    Examples:
        >>> wide_macs(WHOLE)
        5243328768
        >>> round(wide_macs(PRINTED["high"]) / wide_macs(WHOLE), 3)
        0.416
    """
    total, inputs, side = 32 * 32 * 27 * 16, 16, 32
    for number, group in enumerate(widths):
        side //= 1 if number == 0 else 2
        for block, (hidden, outputs) in enumerate(group):
            weights = 9 * hidden * (inputs + outputs)
            shortcut = inputs * outputs if block == 0 else 0
            total += side**2 * (weights + shortcut)
            inputs = outputs
    return total + 10 * inputs


def wide_resnet_table(runs: Sequence[Run]) -> Table:
    """What the paper says, and every small run in the last epoch it has."""
    title = "Wide ResNets on CIFAR-10: the paper's, and a small one of the same family"
    caption = "ms/step: on the processor, one thread, in the first and the last epoch"
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left",
        pad_edge=False,
    )  # fmt: skip
    table.add_column("", no_wrap=True)
    for heading in ("units", "error %", "MACs", "share", "ms/step", "epochs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("WRN-28-10")
    for row in ROWS:
        table.add_row(*_printed(row))
    table.add_section()
    table.add_row("WRN-10-1")
    for row in ROWS:
        for run in runs:
            if run.recipe.name == row.recipe(0).name:
                table.add_row(*_ours(row, run, _original(runs)))
    return table


def _printed(row: Row) -> tuple[str, ...]:
    units = sum(width for group in row.widths for block in group for width in block)
    macs = wide_macs(row.widths)
    share = macs / wide_macs(WHOLE)
    return (
        f"  {row.name}", f"{units:,} in all", f"{row.error}", short(macs),
        f"{share:.1%}", "", "200",
    )  # fmt: skip


def _original(runs: Sequence[Run]) -> int | None:
    name = small_wrn_dense().name
    return next((run.epochs[0].macs for run in runs if run.recipe.name == name), None)


def _ours(row: Row, run: Run, original: int | None) -> tuple[str, ...]:
    first, last = run.epochs[0], run.epochs[-1]
    end = run.outcome
    macs = last.macs if end is None else end.macs
    epochs = f"{last.number}" if end else f"{last.number}/{run.recipe.epochs}"
    return (
        f"  {row.name}",
        architecture(last.effective if end is None else end.effective),
        f"{last.test_error:.2f}",
        short(macs),
        "" if original is None else f"{macs / original:.1%}",
        f"{_step(first):.0f}, {_step(last):.0f}",
        epochs,
    )


def _step(epoch: Epoch) -> float:
    """Milliseconds on the processor."""
    return 1e3 * epoch.processor_seconds / max(epoch.steps, 1)

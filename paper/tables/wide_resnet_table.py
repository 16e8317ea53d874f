"""Section 4.2 of the paper next to our small runs: from runs to a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from diffprune.lab import Run
from diffprune.lab.formatting import architecture, short
from paper import wide_resnet_recipes as r
from paper.recipe_parts import MakeRecipe
from paper.tables.layout import empty_table, mean_row

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
    """A result of section 4.2."""

    name: str
    widths: Widths
    error: float


ROWS: Final = (
    # Printed as 0.42 %: the network is known to make 4.17 % errors.
    Row(name="original", widths=WHOLE, error=4.2),
    Row(name="low", widths=PRINTED["low"], error=4.2),
    Row(name="high", widths=PRINTED["high"], error=4.5),
)


@dataclass(frozen=True, kw_only=True)
class SmallNetwork:
    """A network of the family that was trained here.

    Attributes:
        name: What tables call it.
        widen: Its factor on widths; its depth is ten.
        side: Pixels of its images.
        original: The recipe that prunes nothing.
        pruned: The recipes that do, by what the table calls them.
    """

    name: str
    widen: int
    side: int
    original: MakeRecipe
    pruned: Mapping[str, MakeRecipe]

    def labels(self) -> dict[str, str]:
        """What rows and lines are called, by the name of the recipe."""
        rows = {"original": self.original, **self.pruned}
        return {make(0).name: label for label, make in rows.items()}

    @property
    def macs(self) -> int:
        """Multiply-adds for one image, before anything is pruned."""
        widths = (self.widen * width for width in (16, 32, 64))
        return wide_macs([[(width, width)] for width in widths], self.side)


WRN_10_2: Final = SmallNetwork(
    name="WRN-10-2",
    widen=2,
    side=16,
    original=r.wide_wrn_dense,
    pruned={
        "low, budget": r.wide_wrn_low_budget,
        "high, budget": r.wide_wrn_high_budget,
        "low, strengths": r.wide_wrn_low,
        "high, strengths": r.wide_wrn_high,
    },
)
WRN_10_4: Final = SmallNetwork(
    name="WRN-10-4",
    widen=4,
    side=16,
    original=r.wider_wrn_dense,
    pruned={
        "low, budget": r.wider_wrn_low_budget,
        "high, budget": r.wider_wrn_high_budget,
        "low, budget, taught": r.wider_wrn_low_taught,
    },
)
WRN_10_4_FEW: Final = SmallNetwork(
    name="WRN-10-4, few images",
    widen=4,
    side=16,
    original=r.spare_wrn_dense,
    pruned={
        "low, budget": r.spare_wrn_low_budget,
        "high, budget": r.spare_wrn_high_budget,
    },
)
WRN_10_1: Final = SmallNetwork(
    name="WRN-10-1",
    widen=1,
    side=32,
    original=r.small_wrn_dense,
    pruned={"low": r.small_wrn_low, "high": r.small_wrn_high},
)
NETWORKS: Final = {
    "wrn-10-2": WRN_10_2,
    "wrn-10-4": WRN_10_4,
    "wrn-10-4-few": WRN_10_4_FEW,
    "wrn-10-1": WRN_10_1,
}
"""By the name that `python -m paper steps` takes."""


def wide_macs(widths: Widths, side: int = 32) -> int:
    """Multiply-adds for one image, if the widths are exactly these.

    Args:
        widths: By group and block.
        side: Pixels of the image.

    Examples:
        >>> wide_macs(WHOLE)
        5243328768
        >>> round(wide_macs(PRINTED["high"]) / wide_macs(WHOLE), 3)
        0.416
    """
    total, inputs = side**2 * 27 * 16, 16
    for number, group in enumerate(widths):
        side //= 1 if number == 0 else 2
        for block, (hidden, outputs) in enumerate(group):
            weights = 9 * hidden * (inputs + outputs)
            is_plain = number == 0 and inputs == outputs
            shortcut = inputs * outputs if block == 0 and not is_plain else 0
            total += side**2 * (weights + shortcut)
            inputs = outputs
    return total + 10 * inputs


def wide_resnet_table(runs: Sequence[Run]) -> Table:
    """What the paper says, and every small run in the last epoch it has."""
    title = "Wide ResNets on CIFAR-10: the paper's, and small ones"
    table = empty_table(title, ("units", "error %", "MACs", "share", "epochs"))
    table.add_row("WRN-28-10")
    for row in ROWS:
        table.add_row(*_printed(row))
    for network in NETWORKS.values():
        rows = [*_rows(network, runs)]
        if rows:
            table.add_section()
            table.add_row(network.name)
        for cells in rows:
            table.add_row(*cells)
    return table


def _printed(row: Row) -> tuple[str, ...]:
    units = sum(width for group in row.widths for block in group for width in block)
    macs = wide_macs(row.widths)
    share = macs / wide_macs(WHOLE)
    return (
        f"  {row.name}", f"{units:,} in all", f"{row.error}", short(macs),
        f"{share:.1%}", "200",
    )  # fmt: skip


def _rows(network: SmallNetwork, runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """Yield the runs of a network, the original first, and means of several seeds."""
    for name, label in network.labels().items():
        same = [run for run in runs if run.recipe.name == name]
        seeds = [run.recipe.seed for run in same]
        for number, (seed, run) in enumerate(zip(seeds, same, strict=True)):
            again = ", again" if seed in seeds[:number] else ""
            shown = f"    seed {seed}{again}" if number else f"  {label}"
            yield _ours(shown, run, network.macs)
        errors = [run.epochs[-1].test_error for run in same]
        yield from mean_row(errors, empty=1, title="    mean")


def _ours(label: str, run: Run, whole: int) -> tuple[str, ...]:
    last, end = run.epochs[-1], run.outcome
    macs = last.macs if end is None else end.macs
    epochs = f"{last.number}" if end else f"{last.number}/{run.recipe.epochs}"
    return (
        label,
        architecture(last.effective if end is None else end.effective),
        f"{last.test_error:.2f}",
        short(macs),
        f"{macs / whole:.1%}",
        epochs,
    )

"""From `--budget` to what a recipe holds; meets no budget."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from diffprune._budget import Budget
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab.formatting import listed

NAMES: Final = tuple(f.name for f in fields(Budget) if f.name != "steps")


def parse_budget(specs: Sequence[str]) -> dict[str, float | str]:
    """Read limits such as `macs=0.3`; several may stand in one, with commas.

    Raises:
        UnknownNameError: If something else is to be limited.
        ArgumentError: If an amount cannot be read.

    Examples:
        >>> parse_budget(["macs=0.3,size=200 kB", "params=1e6"])
        {'macs': 0.3, 'size': '200 kB', 'params': 1000000.0}
    """
    limits = dict(_parse(part) for spec in specs for part in spec.split(","))
    Budget(**limits)  # pyright: ignore[reportArgumentType] - `steps` is not among them
    return limits


def _parse(spec: str) -> tuple[str, float | str]:
    name, _, amount = (part.strip() for part in spec.partition("="))
    if name not in NAMES:
        raise UnknownNameError(
            f"`{spec}` limits nothing: there are {listed(NAMES)}.\n"
            "For three tenths of the multiply-adds, type `--budget macs=0.3`."
        )
    if not amount:
        raise ArgumentError(f"how much? Type `--budget {name}=0.3`.")
    try:
        return name, float(amount)
    except ValueError:
        return name, amount

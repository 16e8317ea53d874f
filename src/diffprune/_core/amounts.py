"""Amounts of a cost as people type them, with and without units."""

import math
import re
from collections.abc import Mapping
from numbers import Real
from typing import Final, TypeAlias

from diffprune.errors import ArgumentError

Amount: TypeAlias = float | str

_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_BYTES: Final = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_COUNTS: Final = {"k": 1e3, "m": 1e6, "g": 1e9}
UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "macs": _COUNTS,
    "parameters": _COUNTS,
    "memory": _BYTES,
    "size": _BYTES,
    "latency": _SECONDS,
}
"""What a budget can limit, and what it is counted in."""
_EXAMPLES: Final = {
    "macs": "1.5 M",
    "parameters": "200 k",
    "memory": "1.5 MB",
    "size": "200 kB",
    "latency": "5 ms",
}


def is_fraction(amount: Amount) -> bool:
    """Whether an amount is a part of what the whole model costs."""
    return not isinstance(amount, str) and amount <= 1


def absolute(amount: Amount, whole: float, name: str) -> float:
    """What an amount means for a model that costs so much as a whole.

    Raises:
        ArgumentError: If it is not a positive number, or its unit is unknown.

    Examples:
        >>> absolute(0.5, 40.0, "macs"), absolute("5 ms", 40.0, "latency")
        (20.0, 0.005)
    """
    if isinstance(amount, str):
        return _parse(amount, name)
    is_number = isinstance(amount, Real) and not isinstance(amount, bool)  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
    if not is_number or not 0 < amount < math.inf:
        got = f"{name}={amount}" if is_number else name
        raise ArgumentError(
            f"{got} cannot be met: give a fraction up to 1, a larger number, "
            f'or text with a unit such as "{_EXAMPLES[name]}".'
        )
    return amount * whole if is_fraction(amount) else float(amount)


def _parse(text: str, name: str) -> float:
    found = re.fullmatch(r"\s*([\d.]+(?:e[+-]?\d+)?)\s*([a-z]+)\s*", text.lower())
    if found is None or found[2] not in UNITS[name] or found[1].count(".") > 1:
        raise ArgumentError(
            f"{name}={text!r} is no amount of {name}: write a number and one of the "
            f'units {", ".join(UNITS[name])}, such as "{_EXAMPLES[name]}".'
        )
    amount = float(found[1]) * UNITS[name][found[2]]
    if amount <= 0:
        raise ArgumentError(f"{name}={text!r} cannot be met: nothing costs nothing.")
    return amount

"""Numbers as users give them, refused by name where they cannot be meant."""

import math
import numbers

from diffprune.errors import ArgumentError


def count(name: str, value: object, least: int = 1) -> int:
    """A whole number that is not less than `least`; neither `True` nor `2.0` is one.

    Raises:
        ArgumentError: If it is something else.

    Examples:
        >>> count("steps", 3)
        3
    """
    is_count = not isinstance(value, bool) and isinstance(value, numbers.Integral)
    if not is_count or int(value) < least:  # pyright: ignore[reportArgumentType] - it is one
        raise ArgumentError(
            f"{name} must be a whole number of at least {least}, got {value!r}."
        )
    return int(value)  # pyright: ignore[reportArgumentType] - it is one


def number(
    name: str, value: object, least: float = 0.0, most: float = math.inf
) -> float:
    """A finite number in a range; neither text nor `True` is one.

    Raises:
        ArgumentError: If it is something else.

    Examples:
        >>> number("lr", 1e-3)
        0.001
    """
    is_real = not isinstance(value, bool) and isinstance(value, numbers.Real)
    if not is_real or not math.isfinite(value) or not least <= value <= most:  # pyright: ignore[reportArgumentType,reportOperatorIssue] - it is one
        lower = "" if least == -math.inf else f" of at least {least:g}"
        upper = "" if most == math.inf else f" and at most {most:g}"
        raise ArgumentError(
            f"{name} must be a finite number{lower}{upper}, got {value!r}."
        )
    return float(value)  # pyright: ignore[reportArgumentType] - it is one

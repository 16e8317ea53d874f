"""What users ask for: how much of each cost, and by when. Knows no model."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from diffprune._core.arguments import count, number
from diffprune._core.door import check_fields
from diffprune.errors import ArgumentError

Amount: TypeAlias = float | str

_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_BYTES: Final = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_COUNTS: Final = {"k": 1e3, "m": 1e6, "g": 1e9}
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "macs": _COUNTS,
    "parameters": _COUNTS,
    "memory": _BYTES,
    "size": _BYTES,
    "latency": _SECONDS,
}
_EXAMPLES: Final = {
    "macs": "1.5 M",
    "parameters": "200 k",
    "memory": "1.5 MB",
    "size": "200 kB",
    "latency": "5 ms",
}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a model may cost once it is trained, and how long training takes.

    A number up to 1 is a fraction of the whole model, a larger one is absolute, and so
    is text with a unit: `latency="5 ms"`, `size="200 kB"`, `macs="1.5 M"`.

    Attributes:
        macs: Multiply-adds for one example.
        parameters: Parameters.
        memory: Bytes of the activations of a forward pass, for one example.
        size: Bytes of the model as a file.
        latency: Seconds of one forward pass of the example inputs as they are, measured
            on the device the model is on.
        steps: Optimizer steps of the whole training; a `Pruner` needs it. Units leave
            during the first half, the second lets the model recover.
        pretrained: Whether the model is trained already. Then units leave as soon as a
            few steps have shown what they are worth, the layers that read them are
            refitted, and all other steps are for the small model.

    Examples:
        >>> Budget(macs=0.3, size="200 kB").asked()
        {'macs': 0.3, 'size': '200 kB'}
    """

    macs: Amount | None = None
    parameters: Amount | None = None
    memory: Amount | None = None
    size: Amount | None = None
    latency: Amount | None = None
    steps: int | None = None
    pretrained: bool = False

    def __post_init__(self) -> None:
        if not self.asked():
            names = ", ".join(f"`{name}=`" for name in _UNITS)
            raise ArgumentError(
                f"a budget limits something: give it one of {names}.\n"
                "For three tenths of the multiply-adds, type `Budget(macs=0.3)`."
            )
        if self.steps is not None:
            count("steps", self.steps)
        for name, amount in self.asked().items():
            absolute(amount, 1.0, name)
        check_fields(self)

    def asked(self) -> dict[str, Amount]:
        """What is limited, as it was written."""
        values = {name: getattr(self, name) for name in _UNITS}
        return {name: value for name, value in values.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**self.asked(), "steps": self.steps, "pretrained": self.pretrained}

    def needed_steps(self) -> int:
        """The number of steps, where one is needed.

        Raises:
            ArgumentError: If it was not given.
        """
        if self.steps is None:
            asked = ", ".join(f"{name}={one!r}" for name, one in self.asked().items())
            raise ArgumentError(
                "a pruner has to know how long training takes: half of it closes "
                "units, the other half lets the model recover.\n"
                f"Type `Budget({asked}, steps=...)`, the number of optimizer steps."
            )
        return self.steps


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
    number(name, amount, least=-math.inf)
    if not 0 < amount < math.inf:
        raise ArgumentError(
            f"{name}={amount} cannot be met: give a fraction up to 1, a larger number, "
            f'or text with a unit such as "{_EXAMPLES[name]}".'
        )
    return amount * whole if is_fraction(amount) else float(amount)


def _parse(text: str, name: str) -> float:
    found = re.fullmatch(r"\s*([\d.]+(?:e[+-]?\d+)?)\s*([a-z]+)\s*", text.lower())
    if found is None or found[2] not in _UNITS[name] or found[1].count(".") > 1:
        raise ArgumentError(
            f"{name}={text!r} is no amount of {name}: write a number and one of the "
            f'units {", ".join(_UNITS[name])}, such as "{_EXAMPLES[name]}".'
        )
    amount = float(found[1]) * _UNITS[name][found[2]]
    if amount <= 0:
        raise ArgumentError(f"{name}={text!r} cannot be met: nothing costs nothing.")
    return amount

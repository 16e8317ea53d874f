"""What users ask for: how much of each cost, and by when."""

from dataclasses import dataclass
from typing import Any

from diffprune._core.amounts import UNITS, Amount, absolute
from diffprune._core.arguments import count
from diffprune._core.door import check_fields
from diffprune.errors import ArgumentError


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a model may cost once it is trained, and how long training takes.

    A number up to 1 is a fraction of the whole model. A larger number is an absolute
    amount, and so is text with a unit: `latency="5 ms"`, `size="200 kB"`,
    `macs="1.5 M"`.

    Attributes:
        macs: Multiply-adds for one example.
        parameters: The number of parameters.
        memory: Bytes of the activations of a forward pass, for one example.
        size: Bytes of the model as a file.
        latency: Seconds of one forward pass of the example inputs as they are, measured
            on the device the model is on.
        steps: Optimizer steps of the whole training; a `Pruner` needs this number.
            Units leave during the first three tenths of the steps; in a model without
            batch norms, the layers that read them are refitted. During the rest of the
            steps the model recovers.
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
            names = ", ".join(f"`{name}=`" for name in UNITS)
            raise ArgumentError(
                f"a budget limits something: give it one of {names}.\n"
                "For three tenths of the multiply-adds, type `Budget(macs=0.3)`."
            )
        if self.steps is not None:
            count("steps", self.steps)
        check_fields(self)
        for name, amount in self.asked().items():
            absolute(amount, 1.0, name)

    def asked(self) -> dict[str, Amount]:
        """The limits, by name, as they were given."""
        values = {name: getattr(self, name) for name in UNITS}
        return {name: value for name, value in values.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**self.asked(), "steps": self.steps, "pretrained": self.pretrained}

    def needed_steps(self) -> int:
        """The number of steps, which a pruner has to know.

        Raises:
            ArgumentError: If the budget was made without it.
        """
        if self.steps is None:
            asked = ", ".join(f"{name}={one!r}" for name, one in self.asked().items())
            raise ArgumentError(
                "a pruner has to know how long training takes: three tenths of it "
                "close units, the rest lets the model recover.\n"
                f"Type `Budget({asked}, steps=...)`, the number of optimizer steps."
            )
        return self.steps

"""What happened to a model that was pruned, as data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from diffprune._surgery.compare import Certificate


@dataclass(frozen=True)
class Shrinkage:
    """One removal: when, what is left, and the proof that nobody could tell.

    Attributes:
        step: Number of the training step after which it happened.
        units: Units of every gate that are left, by name.
        parameters: Parameters of the model that are left.
        macs: Multiply-adds that are left, for the example inputs.
        certificate: How far outputs before and after are apart; None before the first
            removal.
    """

    step: int
    units: Mapping[str, int]
    parameters: int
    macs: int
    certificate: Certificate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Shrinkage":
        """Read what `to_dict` wrote."""
        certificate = data["certificate"]
        return cls(
            int(data["step"]),
            dict(data["units"]),
            int(data["parameters"]),
            int(data["macs"]),
            None if certificate is None else Certificate(**certificate),
        )

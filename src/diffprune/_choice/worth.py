"""In which order the units of a group should leave, and what each would cost then.

The worth of a unit is the mean square, over examples, of the first-order effect of its
removal on the loss *after the other units took over what they can*. What they can take
over follows from the inverse of the covariance of the reader's inputs (as in optimal
brain surgery); it is worth more once they have left, so it is updated as units leave.
"""

from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor

from diffprune._choice.evidence import GroupEvidence, ReaderEvidence
from diffprune._core.types import Bool, Float, Int

RIDGE: Final = 1e-2
_ROUNDS: Final = 128  # units of larger groups leave several at a time
_TINY: Final = 1e-30


@dataclass(frozen=True)
class Leaving:
    """The order in which the units of a group leave.

    Attributes:
        name: The group.
        order: Numbers of all its units, the first to leave first.
        worth: What each costs when it leaves, in that order: a mean square effect on
            the loss of an example.
        is_compensated: Whether what other units can take over is accounted for.
    """

    name: str
    order: Int[Tensor, " units"]
    worth: Float[Tensor, " units"]
    is_compensated: bool

    def keep(self, width: int) -> Bool[Tensor, " units"]:
        """The units that are left when so many are."""
        mask = torch.ones(len(self.order), dtype=torch.bool)
        mask[self.order[: len(self.order) - width]] = False
        return mask

    def narrowed(self, keep: Bool[Tensor, " units"]) -> "Leaving":
        """The order of those that are left when the others have gone."""
        stays, numbers = keep[self.order], keep.cumsum(0) - 1
        return replace(self, order=numbers[self.order[stays]], worth=self.worth[stays])

    def ahead(self, units: Bool[Tensor, " units"]) -> "Leaving":
        """The order in which these leave before all others, and for nothing."""
        first = units[self.order]
        order = torch.cat([self.order[first], self.order[~first]])
        worth = torch.cat([self.worth[first] * 0, self.worth[~first]])
        return replace(self, order=order, worth=worth)

    def ranks(self) -> Float[Tensor, " units"]:
        """By number, when each leaves: the later, the better it is."""
        places = torch.arange(len(self.order)).double()
        return torch.empty_like(places).index_copy(0, self.order, places)

    def scores(self) -> Float[Tensor, " units"]:
        """The worth of each unit, by its number."""
        return torch.empty_like(self.worth).index_copy(0, self.order, self.worth)


def order_units(evidence: GroupEvidence) -> Leaving:
    """Let all units of a group leave, one by one, the cheapest first."""
    if not evidence.readers:
        worth, order = evidence.squares.sort(stable=True)
        return Leaving(evidence.name, order, worth, is_compensated=False)
    readers = [_Reader(reader, evidence.size) for reader in evidence.readers]
    left = torch.ones(evidence.size, dtype=torch.bool)
    order, worth = list[Tensor](), list[Tensor]()
    at_once = max(1, evidence.size // _ROUNDS)
    while bool(left.any()):
        effects = sum(reader.effects() for reader in readers)
        assert isinstance(effects, Tensor)  # noqa: S101 - there are readers
        scores = effects.double().square().mean(0).cpu().masked_fill(~left, torch.inf)
        count = min(at_once, int(left.sum()))
        least, chosen = scores.topk(count, largest=False, sorted=True)
        order.append(chosen)
        worth.append(least)
        left[chosen] = False
        for reader in readers:
            reader.remove_(chosen)
    return Leaving(evidence.name, torch.cat(order), torch.cat(worth), True)  # noqa: FBT003 - named in the class


@final
class _Reader:
    """What one reader sees of the units that are left."""

    def __init__(self, evidence: ReaderEvidence, units: int) -> None:
        covariance = evidence.covariance.double()
        features, self._units = len(covariance), units
        self._each = features // units
        pull = RIDGE * covariance.diagonal().mean() + _TINY
        eye = torch.eye(features, dtype=torch.float64, device=covariance.device)
        self._inverse = torch.linalg.inv(covariance + pull * eye)
        x = evidence.activations
        self._residuals = x @ self._inverse.to(x.dtype)
        self._gradients = evidence.gradients.contiguous().clone()

    def effects(self) -> Float[Tensor, "examples units"]:
        """What removing each unit does to the loss of each example."""
        z = self._residuals.unflatten(-1, (self._units, self._each))
        u = self._gradients.unflatten(-1, (self._units, self._each))
        if self._each == 1:
            scale = self._inverse.diagonal().clamp(min=_TINY).to(z.dtype)
            return (z * u).sum((1, 3)) / scale
        blocks = self._blocks().to(z.dtype)
        return torch.einsum("nrke,kef,nrkf->nk", z, blocks, u)

    def _blocks(self) -> Float[Tensor, "units each each"]:
        """Inverses of the diagonal blocks; a removed unit has none."""
        split = self._inverse.unflatten(0, (self._units, self._each))
        split = split.unflatten(-1, (self._units, self._each))
        return torch.linalg.pinv(
            split.diagonal(dim1=0, dim2=2).movedim(-1, 0), hermitian=True
        )

    def remove_(self, units: Int[Tensor, " chosen"]) -> None:
        """Let the others take over what they can of these units."""
        offsets = torch.arange(self._each)
        gone = (units[:, None] * self._each + offsets).flatten()
        gone = gone.to(self._inverse.device)
        rows = self._inverse[gone]
        shares = torch.linalg.solve(rows[:, gone], rows)
        self._inverse -= rows.T @ shares
        shares = shares.to(self._residuals.dtype)
        self._residuals -= self._residuals[..., gone] @ shares
        self._gradients -= self._gradients[..., gone] @ shares
        for tensor in (self._residuals, self._gradients):
            tensor[..., gone] = 0
        self._inverse[gone] = 0
        self._inverse[:, gone] = 0

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

from diffprune._choice.evidence import GroupEvidence
from diffprune._choice.listener import ReaderEvidence
from diffprune._core.types import Bool, Float, Int

RIDGE: Final = 1e-2
_ROUNDS: Final = 32  # of what is left, such a part leaves at a time
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

    def behind(self, units: Bool[Tensor, " units"]) -> "Leaving":
        """The order in which these leave after all others."""
        last = units[self.order]
        order = torch.cat([self.order[~last], self.order[last]])
        worth = torch.cat([self.worth[~last], self.worth[last]])
        return replace(self, order=order, worth=worth)

    def ranks(self) -> Float[Tensor, " units"]:
        """By number, when each leaves: the later, the better it is."""
        places = torch.arange(len(self.order)).double()
        return torch.empty_like(places).index_copy(0, self.order, places)

    def scores(self) -> Float[Tensor, " units"]:
        """The worth of each unit, by its number."""
        return torch.empty_like(self.worth).index_copy(0, self.order, self.worth)


def order_units(evidence: GroupEvidence) -> Leaving:
    """Let all units of a group leave, one by one, the cheapest first.

    Of wide groups several leave at a time, the fewer the fewer are left.
    """
    if not evidence.readers:
        worth, order = evidence.squares.sort(stable=True)
        return Leaving(evidence.name, order, worth, is_compensated=False)
    readers = [_Reader(reader, evidence.size) for reader in evidence.readers]
    left = torch.arange(evidence.size)
    order, worth = list[Tensor](), list[Tensor]()
    while len(left):
        effects = sum(reader.effects() for reader in readers)
        assert isinstance(effects, Tensor)  # noqa: S101 - there are readers
        scores = effects.double().square().mean(1).cpu()
        count = max(1, len(left) // _ROUNDS)
        least, chosen = scores.topk(count, largest=False, sorted=True)
        order.append(left[chosen])
        worth.append(least)
        move = _Move.up(chosen, len(left))
        left = move.apply_(left)
        for reader in readers:
            reader.remove_(chosen, move)
    return Leaving(evidence.name, torch.cat(order), torch.cat(worth), True)  # noqa: FBT003 - named in the class


@dataclass(frozen=True)
class _Move:
    """Fill the places of what has left with what stands last, so that little is copied.

    Attributes:
        holes: Places that became free, of those that remain.
        movers: What comes into each.
        left: How many places remain.
    """

    holes: Int[Tensor, " moved"]
    movers: Int[Tensor, " moved"]
    left: int

    @classmethod
    def up(cls, gone: Int[Tensor, " gone"], length: int) -> "_Move":
        left = length - len(gone)
        stays = torch.ones(length, dtype=torch.bool)
        stays[gone] = False
        movers = stays[left:].nonzero().flatten() + left
        return cls((~stays[:left]).nonzero().flatten(), movers, left)

    def of_features(self, each: int) -> "_Move":
        """The same move where every unit takes up several places."""
        holes, movers = (_features(units, each) for units in (self.holes, self.movers))
        return _Move(holes, movers, self.left * each)

    def apply_(self, tensor: Tensor) -> Tensor:
        """Move rows in place, and return those that remain."""
        device = tensor.device
        tensor[self.holes.to(device)] = tensor[self.movers.to(device)]
        return tensor[: self.left]


def _features(units: Int[Tensor, " units"], each: int) -> Int[Tensor, " features"]:
    """The features of some units, of which every unit has so many."""
    return (units[:, None] * each + torch.arange(each)).flatten()


@final
class _Reader:
    """What one reader sees of the units that are left.

    Features come first, so that a unit is a piece of memory.
    """

    def __init__(self, evidence: ReaderEvidence, units: int) -> None:
        covariance = evidence.covariance.double()
        length = len(covariance)
        self._each = length // units
        pull = RIDGE * covariance.diagonal().mean() + _TINY
        eye = torch.eye(length, dtype=torch.float64, device=covariance.device)
        self._inverse = torch.linalg.inv(covariance + pull * eye)
        x, u = (
            tensor.movedim(-1, 0).reshape(length, -1)
            for tensor in (evidence.activations, evidence.gradients)
        )
        self._examples = len(evidence.activations)
        self._residuals = self._inverse.to(x.dtype) @ x
        self._gradients = u.clone()

    def effects(self) -> Float[Tensor, "units examples"]:
        """What removing each unit does to the loss of each example."""
        z, u = self._residuals, self._gradients
        if self._each == 1:
            scale = self._inverse.diagonal().clamp(min=_TINY).to(z.dtype)
            return _by_example(z * u, self._examples) / scale[:, None]
        z = self._blocks().to(z.dtype) @ z.unflatten(0, (-1, self._each))
        products = (z * u.unflatten(0, (-1, self._each))).sum(1)
        return _by_example(products, self._examples)

    def _blocks(self) -> Float[Tensor, "units each each"]:
        """Inverses of the diagonal blocks."""
        split = self._inverse.unflatten(0, (-1, self._each))
        split = split.unflatten(-1, (-1, self._each))
        return torch.linalg.pinv(
            split.diagonal(dim1=0, dim2=2).movedim(-1, 0), hermitian=True
        )

    def remove_(self, units: Int[Tensor, " chosen"], move: _Move) -> None:
        """Let the others take over what they can of these units."""
        gone = _features(units, self._each).to(self._inverse.device)
        rows = self._inverse[gone]
        shares = torch.linalg.solve(rows[:, gone], rows)
        self._inverse.addmm_(rows.T, shares, alpha=-1)
        shares = shares.to(self._residuals.dtype).T
        move = move.of_features(self._each)
        for tensor in (self._residuals, self._gradients):
            tensor.addmm_(shares, tensor[gone], alpha=-1)
        self._residuals = move.apply_(self._residuals)
        self._gradients = move.apply_(self._gradients)
        self._inverse = move.apply_(move.apply_(self._inverse).T).T


def _by_example(
    rows: Float[Tensor, "units rows"], examples: int
) -> Float[Tensor, "units examples"]:
    return rows.unflatten(1, (examples, -1)).sum(2)

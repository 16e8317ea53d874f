"""Listen to the readers of groups while a model runs forward and backward.

For every weight that reads units of a group, two tensors are kept for each example: the
activations of the units, and the gradient of the loss with respect to them *through
this reader alone*.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffprune._choice.forward import AtMap, Compute, first_names
from diffprune._choice.linear_maps import LinearMap
from diffprune._core.own_modes import own_modes
from diffprune._core.types import Float, Int
from diffprune._graph import PruneGroup, unit_numbers
from diffprune.gates.gate import precise

_MOST_NUMBERS: Final = 1 << 23  # per reader, of each of the two tensors
_SAMPLES_PER_FEATURE: Final = 4


@dataclass(frozen=True)
class ReaderEvidence:
    """What one reader of a group saw.

    Every unit has the same number of *features*: one, or as many as the reader tells
    apart (the elements of a head). Those of unit k are `k * features` and the following
    ones.

    Attributes:
        covariance: Of the features, over all examples and positions.
        activations: Of every example, some rows of features.
        gradients: Of the loss, with respect to them. The sum over the rows of their
            product is that over all positions, for any two features.
    """

    covariance: Float[Tensor, "features features"]
    activations: Float[Tensor, "examples rows features"]
    gradients: Float[Tensor, "examples rows features"]


@final
class Listener:
    """Listens to the readers of groups while a model runs forward and backward.

    Args:
        model: The model; it need not be the one that runs, if names are the same.
        groups: Whose units to listen to.
        examples: How many examples to listen to; of further ones nothing is heard.
        only: The weights to listen to; all if omitted.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: Sequence[PruneGroup],
        examples: int,
        only: Collection[str] | None = None,
    ) -> None:
        found = _taps(model, groups, examples)
        self._taps = [tap for tap in found if only is None or tap.weight in only]
        self._examples, self._passes, self.count = examples, 0, 0
        self._last_end = self.position

    @property
    def groups(self) -> set[str]:
        """The groups that have readers to listen to."""
        return {tap.group for tap in self._taps}

    def at_map(
        self, name_of: Callable[[Tensor], str], count: int, scale: float = 1.0
    ) -> AtMap:
        """What to do at each linear map of a forward pass of so many examples.

        Args:
            name_of: From the weight of a map to the name of the parameter.
            count: How many examples run.
            scale: What to multiply gradients by.
        """
        by_dim = dict[tuple[str, int], list[_Tap]]()
        for tap in self._taps:
            by_dim.setdefault((tap.weight, tap.dim), []).append(tap)
        taken, number = min(count, self._examples - self.count), self._passes
        self.count += taken
        self._passes += 1

        def at_map(found: LinearMap, compute: Compute) -> Tensor:
            wanted = by_dim.get((name_of(found.weight), found.input_dim), [])
            if not wanted or not taken:
                return compute(found.x)
            # Its own view, so that its gradient is what comes through this reader.
            x = found.x.view_as(found.x)
            x = x if x.requires_grad else x.detach().requires_grad_()
            seen = found.features(found.x.detach())

            def hear(gradient: Tensor) -> None:
                u = by_example(found.features(gradient) * scale, count)
                if len(u) < count:
                    u = u / count**0.5
                for tap in wanted:
                    tap.hear(number, by_example(seen, count)[:taken], u[:taken])

            x.register_hook(hear)
            return compute(x)

        return at_map

    @property
    def position(self) -> tuple[int, int]:
        """How many examples and passes there were."""
        return self.count, self._passes

    def return_to_(self, position: tuple[int, int]) -> None:
        """The passes since then are none: nothing was heard in them."""
        self.count, self._passes = position

    @own_modes()
    def end_batch(self, scale: float = 1.0) -> None:
        """Sum up what was heard since the last time, gradients times this factor."""
        for tap in self._taps:
            tap.end_batch(scale)
        self._last_end = self.position

    def forget_batch(self) -> None:
        """What was heard since the last time tells nothing, and was not heard."""
        for tap in self._taps:
            tap.forget_batch()
        self.return_to_(self._last_end)

    def state_dict(self) -> dict[str, Any]:
        """All that was heard, to continue in another process."""
        taps = [tap.state_dict() for tap in self._taps]
        return {"count": self.count, "passes": self._passes, "taps": taps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.return_to_((state["count"], state["passes"]))
        self._last_end = self.position
        for tap, saved in zip(self._taps, state["taps"], strict=True):
            tap.load_state_dict(saved)

    def heard(self, group: str) -> tuple[ReaderEvidence, ...]:
        """What the readers of a group saw; none if some saw less than others.

        Where one saw rows of no example in particular, such as those that a mask
        picked, what all of them saw in a pass counts as one example.
        """
        taps = [tap for tap in self._taps if tap.group == group and tap.rows]
        for by_pass in (False, True):
            found = tuple(tap.evidence(by_pass=by_pass) for tap in taps)
            if len({len(one.activations) for one in found}) == 1:
                return found
        return ()


def _taps(
    model: nn.Module, groups: Iterable[PruneGroup], examples: int
) -> Iterator["_Tap"]:
    """One for each reader of each group whose units have equally many features."""
    first = first_names(model)
    seen = set[tuple[str, int, str]]()
    for group in groups:
        for place in group.axes:
            weight = first.get(place.tensor)
            if not place.is_read or weight is None:
                continue
            reader = weight, place.dim, group.name
            if reader in seen:
                continue
            numbers = unit_numbers(place.axis, group.atom)
            elements = [
                (numbers == unit).nonzero().flatten() for unit in range(group.size)
            ]
            if len({len(some) for some in elements}) == 1:
                seen.add(reader)
                yield _Tap(*reader, torch.stack(elements), len(numbers), examples)


@final
class _Tap:
    """Listens to one reader of one group.

    Args:
        weight: Name of the reader's weight.
        dim: The dimension of the weight that is summed over.
        group: Name of the group.
        elements: Which features belong to each unit.
        length: How many features there are, in each group of a grouped convolution.
        examples: How many examples there will be.
    """

    def __init__(
        self,
        weight: str,
        dim: int,
        group: str,
        elements: Int[Tensor, "units elements"],
        length: int,
        examples: int,
    ) -> None:
        self.weight, self.dim, self.group = weight, dim, group
        self._elements, self._length, self._examples = elements, length, examples
        self._heard = dict[int, list[tuple[Tensor, Tensor]]]()
        self.rows = list[tuple[Tensor, Tensor, Tensor]]()
        self._count, self._sums = 0, list[Tensor]()

    def hear(self, number: int, seen: Tensor, gradient: Tensor) -> None:
        """Take a call in some forward pass into account: rows of each example."""
        both = self._chosen(seen), self._chosen(gradient)
        self._heard.setdefault(number, []).append(both)

    def _chosen(
        self, rows: Float[Tensor, "examples rows features"]
    ) -> Float[Tensor, "examples rows all"]:
        """The elements of all units in their order."""
        elements = self._elements
        repeats = rows.shape[-1] // self._length
        if repeats > 1:  # a grouped convolution reads a unit in each of its groups
            starts = torch.arange(repeats) * self._length
            elements = (starts[:, None] + elements[:, None]).flatten(1)
        return precise(rows[..., elements.flatten().to(rows.device)])

    def end_batch(self, scale: float) -> None:
        """Sum up what was heard: the same weight may have run several times."""
        heard, self._heard = self._heard, {}
        for calls in heard.values():
            x, u = (torch.cat(parts, 1) for parts in zip(*calls, strict=True))
            if bool(x.isfinite().all() and u.isfinite().all()):
                self._end_pass(x, u * scale)

    def forget_batch(self) -> None:
        """Leave out what was heard since the last time."""
        self._heard.clear()

    def state_dict(self) -> dict[str, Any]:
        """What was summed up."""
        return {"rows": self.rows, "count": self._count, "sums": self._sums}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.rows = [tuple(some) for some in state["rows"]]
        self._count, self._sums = state["count"], [*state["sums"]]

    def _end_pass(self, x: Tensor, u: Tensor) -> None:
        if self._is_pooled(x):
            x, u = (self._pooled(tensor) for tensor in (x, u))
        flat = x.flatten(0, 1)
        new = [flat.sum(0).double(), (flat.T @ flat).double()]
        self._sums = [s + n for s, n in zip(self._sums or [0, 0], new, strict=True)]
        self._count += len(flat)
        self.rows.append(self._compressed(x, u))

    def _is_pooled(self, x: Tensor) -> bool:
        """Whether there are too few rows to tell the elements of a unit apart."""
        if x.shape[-1] == len(self._elements):
            return False
        if self._sums:
            return len(self._sums[0]) == len(self._elements)
        rows = self._examples * x.shape[1]
        return rows < _SAMPLES_PER_FEATURE * x.shape[-1]

    def _pooled(self, tensor: Tensor) -> Float[Tensor, "examples rows units"]:
        """The elements of a unit as so many rows."""
        split = tensor.unflatten(-1, (len(self._elements), -1))
        return split.transpose(-1, -2).flatten(1, 2)

    def _compressed(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Fewer rows with the same sums of products, and how often each has a mean."""
        rows, features = x.shape[1:]
        most = _MOST_NUMBERS // (self._examples * features)
        if min(rows, features) > most:
            generator = torch.Generator().manual_seed(rows)
            chosen = torch.randperm(rows, generator=generator)[: max(1, most)]
            x, u = x[:, chosen], u[:, chosen] * (rows / len(chosen))
        elif rows > features:
            eye = torch.eye(features, dtype=x.dtype, device=x.device)
            products = torch.einsum("nrf,nrg->ngf", x, u)
            return products, eye.expand(len(x), -1, -1), u.sum(1)
        return x, u, torch.ones((), dtype=x.dtype, device=x.device)

    def evidence(self, *, by_pass: bool) -> ReaderEvidence:
        """All batches together; activations as differences from their means.

        Args:
            by_pass: Whether all examples of a pass count as one.
        """
        count = max(1, self._count)  # an expert that no row went to saw nothing
        mean = self._sums[0] / count
        covariance = self._sums[1] / count - mean[:, None] * mean
        activations = [
            x - total[..., None] * mean.to(x.dtype)
            if total.ndim
            else x - mean.to(x.dtype)
            for x, _, total in self.rows
        ]
        gradients = [u for _, u, _ in self.rows]
        if by_pass:  # a sum over examples varies by the root of their number
            gradients = [(u / len(u) ** 0.5).flatten(0, 1)[None] for u in gradients]
            activations = [x.flatten(0, 1)[None] for x in activations]
        return ReaderEvidence(covariance, _joined(activations), _joined(gradients))


def _joined(
    parts: Sequence[Float[Tensor, "some rows features"]],
) -> Float[Tensor, "examples rows features"]:
    """All examples; those of shorter batches get rows of zeros, which add nothing."""
    most = max(part.shape[1] for part in parts)
    return torch.cat([F.pad(part, (0, 0, 0, most - part.shape[1])) for part in parts])


def by_example(tensor: Tensor, count: int) -> Float[Tensor, "examples rows features"]:
    """Divide the rows of a tensor among examples.

    Examples are the first dimension, a factor of it, or the second one, as in models
    that take time first. Where neither is so, all rows count as those of one example,
    and so does a vector.

    Examples:
        >>> by_example(torch.ones(6, 5), 3).shape, by_example(torch.ones(0, 5), 3).shape
        (torch.Size([3, 2, 5]), torch.Size([3, 0, 5]))
    """
    features = tensor.shape[-1]
    rows = tensor.shape[:-1].numel()
    if tensor.ndim > 1 and tensor.shape[0] % count == 0:
        return tensor.reshape(count, rows // count, features)
    if tensor.ndim > 2 and tensor.shape[1] == count:
        return tensor.transpose(0, 1).reshape(count, rows // count, features)
    return tensor.reshape(1, rows, features)

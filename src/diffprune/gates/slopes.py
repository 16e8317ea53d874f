"""What units are worth, from gradients that training has anyway: running squares.

A gate's logits follow the signed gradient of the loss, which is about zero where
weights are trained. Its square says what the loss would make of a missing unit.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, final

import torch
from torch import Tensor

from diffprune._core.types import Bool, Float
from diffprune.gates.gate import precise

Names: TypeAlias = tuple[str, ...]
"""Gates whose values are computed together, end to end."""

PAST: Final = 0.98  # the share of what was known before, after every step


@final
class Slopes:
    """A running mean of the squared gradients of gate values, unit by unit.

    Only ratios mean something: the squares of a step are divided by their mean over all
    gates. So batch sizes and loss scales cancel out, and a step whose gradients are not
    finite changes no ratio.

    Args:
        sizes: How many units each gate has, by name.

    Examples:
        >>> slopes = Slopes({"a": 2, "b": 1})
        >>> slopes.hear(("a", "b"), torch.tensor([1.0, 2.0, 3.0]))
        >>> _ = slopes.end_step()
        >>> a, b = slopes.squares().values()
        >>> round(float(b / a[0]), 4)
        9.0
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        self._heard = dict[Names, Tensor]()
        self._known: dict[Names, Tensor] = {}

    def listen(self, name: str, values: Float[Tensor, "*examples units"]) -> None:
        """Hear the gradient of the values of one gate when it comes."""
        if values.requires_grad and not torch.compiler.is_compiling():
            values.register_hook(partial(self.hear, (name,)))

    def hear(self, names: Names, gradient: Float[Tensor, " all"]) -> None:
        """Take the gradient of the values of some gates into account."""
        gradient = precise(gradient.detach()).reshape(-1, gradient.shape[-1]).sum(0)
        before = self._heard.get(names)
        if before is None or before.shape != gradient.shape:
            self._heard[names] = gradient.square()
        else:
            before.addcmul_(gradient, gradient)

    @torch.no_grad()
    def end_step(
        self, sum_: Callable[[Tensor], None] | None = None
    ) -> Float[Tensor, ""] | None:
        """Add what was heard since the last step to what is known.

        Args:
            sum_: Adds up a tensor, in place, over the processes that train the model;
                all of them call it, whatever they have heard. Their gradients count
                alike, as those of accumulated batches do.

        Returns:
            The mean square of this step, which its squares were divided by.
        """
        heard = {n: h for n, h in self._heard.items() if len(h) == self._size(n)}
        self._heard.clear()
        if sum_ is not None:
            heard = self._summed(heard, sum_)
        if not heard:
            return None
        count = sum(len(squares) for squares in heard.values())
        total = torch.stack([squares.sum() for squares in heard.values()]).sum()
        mean = total / count
        for names, squares in heard.items():
            # Where the mean is not finite, no share is: all count as zero.
            share = squares.div_(mean).nan_to_num_(0.0, 0.0, 0.0)
            known = self._known.get(names)
            if known is None:
                known = self._joined(names, share)
            # The model may have moved to another device or type since.
            self._known[names] = known.to(share).lerp_(share, 1 - PAST)
        return mean

    def squares(self) -> dict[str, Float[Tensor, " units"]]:
        """For each gate, what its units are worth; zero where nothing is known."""
        found = {n: torch.zeros(size).double() for n, size in self._sizes.items()}
        for names, known in self._known.items():
            parts = known.double().cpu().split([self._sizes[name] for name in names])
            for name, part in zip(names, parts, strict=True):
                found[name] += part
        return found

    def keep_(self, keep: Mapping[str, Bool[Tensor, " units"]]) -> None:
        """Forget the units outside these masks."""
        for names, known in self._known.items():
            stays = torch.cat([keep[name].cpu() for name in names])
            self._known[names] = known[stays.to(known.device)]
        self._sizes = {name: int(keep[name].sum()) for name in self._sizes}
        self._heard.clear()

    def load_(self, squares: Mapping[str, Float[Tensor, " units"]]) -> None:
        """Know of each gate what another run knew of it."""
        read = {name: some.double().clone() for name, some in squares.items()}
        self._sizes = {name: len(read[name]) for name in self._sizes}
        self._heard.clear()
        is_known = any(bool(some.any()) for some in read.values())
        self._known = {(n,): some for n, some in read.items()} if is_known else {}

    def _summed(
        self, heard: Mapping[Names, Tensor], sum_: Callable[[Tensor], None]
    ) -> dict[Names, Tensor]:
        """What all processes have heard, of all gates end to end."""
        parts = {n: torch.zeros(size) for n, size in self._sizes.items()}
        for names, squares in heard.items():
            sizes = [self._sizes[name] for name in names]
            for name, part in zip(names, squares.float().split(sizes), strict=True):
                parts[name] = parts[name].to(part) + part
        whole, every = torch.cat([*parts.values()]), tuple(self._sizes)
        sum_(whole)
        if self._known.keys() - {every}:  # what this process has learnt alone
            known = torch.cat([*self.squares().values()])
            self._known = {every: known.to(whole)}
        return {every: whole}

    def _joined(self, names: Names, first: Tensor) -> Tensor:
        """What is known of these gates one by one, or else the first there is."""
        if any((name,) not in self._known for name in names):
            return first
        return torch.cat([self._known.pop((name,)) for name in names]).to(first)

    def _size(self, names: Names) -> int:
        return sum(self._sizes[name] for name in names)

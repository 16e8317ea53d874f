"""What shrinking looks at: the first examples of some data, as pairs."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, final

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from diffprune._choice import Batch
from diffprune._choice.examples import batch_size, can_be_cut, first_examples
from diffprune._core.recomputation import without_recomputing
from diffprune._graph import ExampleInputs, mode, own_arguments, unchanged
from diffprune.errors import ArgumentError


@final
class Batches:
    """Batches from the beginning of some data, read once and no further than needed.

    Args:
        data: Pairs of inputs and targets, or dicts that hold both; a list, a loader, or
            a generator.
        model: What reads them.

    Raises:
        ArgumentError: If there are none, or they are something else.
    """

    def __init__(self, data: Iterable[Any], model: nn.Module) -> None:
        self._read, self._rest, self._model = list[Batch](), iter(data), model
        if self._next() is None:
            raise ArgumentError(
                "data has no batches: shrinking looks at some examples.\n"
                "Pass a DataLoader, or a list of pairs `[(inputs, targets), ...]`."
            )

    @property
    def inputs(self) -> ExampleInputs:
        """The inputs of the first batch."""
        return self._read[0][0]

    def example(self, size: int) -> ExampleInputs:
        """Inputs of so many examples, or the first batch if it cannot be cut."""
        return first_examples(self.inputs, size) if self._can_be_cut else self.inputs

    def first(self, examples: int) -> list[Batch]:
        """So many examples, or all there are; a few more if batches cannot be cut."""
        found, missing = list[Batch](), examples
        for batch in self._all():
            is_too_long = batch_size(batch[0]) > missing and self._can_be_cut
            found.append(_cut(batch, missing) if is_too_long else batch)
            missing -= batch_size(found[-1][0])
            if missing <= 0:
                break
        return found

    @cached_property
    def _can_be_cut(self) -> bool:
        """Whether examples come first, and do not see each other."""
        return can_be_cut(self.inputs, self._returned)

    def _returned(self, inputs: ExampleInputs) -> object:
        args, kwargs = own_arguments(inputs)
        with (
            unchanged(self._model),
            mode(self._model, training=False),
            without_recomputing(),
        ):
            return self._model(*args, **kwargs)

    def _all(self) -> Iterator[Batch]:
        yield from self._read
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> Batch | None:
        """Read one more batch."""
        for batch in self._rest:
            pair = _pair(pytree.tree_map_only(Tensor, _as_usual, batch))
            if not batch_size(pair[0]):
                raise ArgumentError(
                    f"batch {len(self._read)} of data holds no examples: leave it out."
                )
            self._read.append(pair)
            return pair
        return None


def _as_usual(tensor: Tensor) -> Tensor:
    """A tensor that gradients can go through, though not made for that."""
    return tensor.clone() if tensor.is_inference() else tensor


def _cut(batch: Batch, examples: int) -> Batch:
    if batch[0] is batch[1]:
        whole = first_examples(batch[0], examples)
        return whole, whole
    return first_examples(batch, examples)


def _pair(batch: object) -> Batch:
    if isinstance(batch, Mapping):
        return batch, batch
    if isinstance(batch, tuple | list) and len(batch) == 2:
        inputs, targets = batch
        return tuple(inputs) if isinstance(inputs, list) else inputs, targets
    raise ArgumentError(
        f"data yields a {type(batch).__name__}, where a pair of inputs and targets is "
        "expected, or a dict that holds both.\nFor a model of several inputs, yield "
        "`((first, second), targets)`."
    )

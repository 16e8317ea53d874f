"""How many examples a batch holds, the first few of them, and small batches as one."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from diffprune._core.leaves import leaves_of

TreeT = TypeVar("TreeT")
FoundT = TypeVar("FoundT")

_FEW: Final = 8


def batch_size(inputs: object) -> int:
    """How many examples there are: the length of the first tensor among the inputs."""
    return next((len(x) for x in leaves_of(Tensor, inputs) if x.ndim), 1)


def first_examples(batch: TreeT, some: int) -> TreeT:
    """The first examples of a batch; all of them where they cannot be told apart.

    They can if all tensors are equally long, and there is nothing else but flags.

    Examples:
        >>> import torch
        >>> first_examples({"x": torch.rand(8, 3), "y": torch.rand(8)}, 2)["x"].shape
        torch.Size([2, 3])
    """
    leaves: list[Any] = pytree.tree_leaves(batch)
    is_clear = all(isinstance(leaf, Tensor | bool | None) for leaf in leaves)
    if not is_clear or len({len(x) for x in leaves_of(Tensor, batch) if x.ndim}) != 1:
        return batch
    return pytree.tree_map_only(Tensor, lambda x: x[:some] if x.ndim else x, batch)


@torch.no_grad()
def can_be_cut(batch: TreeT, run: Callable[[TreeT], object]) -> bool:
    """Whether a batch has at least three examples, which do not see each other.

    Time may come first, and happen to be as long as the batch.

    Args:
        batch: Inputs of a model.
        run: Returns what the model does; it may raise anything.

    Examples:
        >>> x = torch.rand(5, 2)
        >>> can_be_cut(x, lambda x: x.exp()), can_be_cut(x, lambda x: x - x.mean(0))
        (True, False)
    """
    few = [first_examples(batch, some) for some in (3, 2)]
    if few[0] is batch or batch_size(batch) < 3:
        return False
    try:
        three, two = (pytree.tree_leaves(run(some)) for some in few)
    except Exception:  # noqa: BLE001 - whatever a model raises: it needs them all
        return False
    pairs = [
        (one[:2], other)
        for one, other in zip(three, two, strict=False)
        if isinstance(one, Tensor) and one.ndim and len(one) == 3
    ]
    return bool(pairs) and all(are_close(*pair) for pair in pairs)


def from_few(find: Callable[[TreeT], FoundT], batch: TreeT) -> FoundT:
    """What can be found out from a few examples; from all if it fails with few.

    Time may come first, be as long as the batch, and be fixed.
    """
    few = first_examples(batch, _FEW)
    if few is batch:
        return find(batch)
    try:
        return find(few)
    except Exception:  # noqa: BLE001 - whatever a model raises; all are tried next
        return find(batch)


def are_close(one: Tensor, other: Tensor) -> bool:
    """Whether a model returned the same but for rounding."""
    if one.shape != other.shape:
        return False
    return torch.allclose(one, other, 1e-2, 1e-4, equal_nan=True)


def joined(
    batches: Sequence[TreeT], most: int, run: Callable[[TreeT], object]
) -> list[tuple[str, TreeT]]:
    """Join neighbours of few examples, and say what to call each of the new batches.

    Nothing is joined if a model would return something else then: examples may see
    each other, or time comes first.

    Args:
        batches: Inputs of a model.
        most: How many examples a joined batch may hold.
        run: Returns what the model does.

    Examples:
        >>> import torch
        >>> three = [torch.rand(2, 5) for _ in range(3)]
        >>> [(name, len(x)) for name, x in joined(three, 4, lambda x: x.exp())]
        [('batches 0 to 1', 4), ('batch 2', 2)]
    """
    parts = list[list[TreeT]]()
    for batch in batches:
        if parts and _fits(parts[-1], batch, most):
            parts[-1].append(batch)
        else:
            parts.append([batch])
    several = next((some for some in parts if len(some) > 1), None)
    if several is None or not _run_apart(several[:2], run):
        parts = [[batch] for batch in batches]
    found, number = list[tuple[str, TreeT]](), 0
    for some in parts:
        last = number + len(some) - 1
        name = f"batch {number}" if last == number else f"batches {number} to {last}"
        found.append((name, _as_one(some)))
        number = last + 1
    return found


def _fits(some: Sequence[TreeT], batch: TreeT, most: int) -> bool:
    """Whether one more batch can be joined to some."""
    kind = _kind(batch)
    count = sum(map(batch_size, some)) + batch_size(batch)
    return kind is not None and count <= most and kind == _kind(some[0])


def _kind(batch: object) -> object | None:
    """What batches share that can be joined; None for those that never can."""
    leaves, structure = pytree.tree_flatten(batch)
    kinds, lengths = list[object](), set[int]()
    for leaf in leaves:
        if isinstance(leaf, bool | None):
            kinds.append(leaf)
        elif isinstance(leaf, Tensor) and leaf.layout == torch.strided and leaf.ndim:
            kinds.append((leaf.shape[1:], leaf.dtype, leaf.device))
            lengths.add(len(leaf))
        else:
            return None
    return (structure, kinds) if len(lengths) == 1 else None


def _as_one(batches: Sequence[TreeT]) -> TreeT:
    def join(*leaves: Any) -> Any:  # noqa: ANN401 - what a batch holds
        return torch.cat(leaves) if isinstance(leaves[0], Tensor) else leaves[0]

    first, *others = batches
    return pytree.tree_map(join, first, *others) if others else first


def _run_apart(batches: Sequence[TreeT], run: Callable[[TreeT], object]) -> bool:
    """Whether a model returns for all of them what it returns for each."""
    try:
        returned = [pytree.tree_leaves(run(batch)) for batch in batches]
        at_once: list[Any] = pytree.tree_leaves(run(_as_one(batches)))
        pairs = [
            (leaf, torch.cat(parts))
            for leaf, *parts in zip_longest(at_once, *returned)
            if isinstance(leaf, Tensor) and leaf.ndim
        ]
        return bool(pairs) and all(are_close(*pair) for pair in pairs)
    except Exception:  # noqa: BLE001 - whatever a model raises: it needs them as they are
        return False

"""How many examples a batch holds, and the first few of them."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from torch import Tensor
from torch.utils import _pytree as pytree

TreeT = TypeVar("TreeT")
FoundT = TypeVar("FoundT")

_FEW: Final = 8


def batch_size(inputs: object) -> int:
    """How many examples there are: the length of the first tensor among the inputs."""
    leaves = pytree.tree_leaves(inputs)
    shapes = [leaf.shape for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim]
    return shapes[0][0] if shapes else 1


def first_examples(batch: TreeT, some: int) -> TreeT:
    """The first examples of a batch; all of them where they cannot be told apart.

    They can if all tensors are equally long, and there is nothing else but flags.

    Examples:
        >>> import torch
        >>> first_examples({"x": torch.rand(8, 3), "y": torch.rand(8)}, 2)["x"].shape
        torch.Size([2, 3])
    """
    leaves: list[Any] = pytree.tree_leaves(batch)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim]
    is_clear = all(isinstance(leaf, Tensor | bool | None) for leaf in leaves)
    if not is_clear or len({len(tensor) for tensor in tensors}) != 1:
        return batch

    def cut(leaf: Any) -> Any:  # noqa: ANN401 - what a batch holds
        return leaf[:some] if isinstance(leaf, Tensor) and leaf.ndim else leaf

    return pytree.tree_map(cut, batch)


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

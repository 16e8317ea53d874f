"""What of one kind there is in nested lists, tuples and dicts."""

from typing import TypeVar

from torch.utils import _pytree as pytree

LeafT = TypeVar("LeafT")


def leaves_of(kind: type[LeafT], tree: object) -> list[LeafT]:
    """All leaves of a kind, in order.

    Examples:
        >>> leaves_of(int, {"a": (1, [2.0, 3]), "b": None})
        [1, 3]
    """
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, kind)]

"""Numbers that were read become a tensor's memory, so that they need not be copied.

The memory that the tensor had is left as it is: what fails later can give it back, and
nothing had to be copied for that either.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from torch import Tensor


def borrowers(
    tensors: Mapping[str, Tensor], read: Mapping[str, Tensor]
) -> dict[Tensor, Tensor]:
    """Which tensors can have which memory.

    A tensor can that owns all of its own memory, alone, and has the place and the
    layout of what was read; and nothing is lent twice, even if it was read for two.

    Args:
        tensors: Of a model, by name.
        read: For each name, what was read for it and belongs to nobody else.
    """
    alone = Counter(_memory(tensor) for tensor in dict.fromkeys(tensors.values()))
    found, lent = dict[Tensor, Tensor](), set[int]()
    for name, tensor in tensors.items():
        new = read.get(name)
        if new is None or tensor in found or _memory(new) in lent:
            continue
        if alone[_memory(tensor)] == 1 and _is_alike(tensor, new):
            found[tensor] = new
            lent.add(_memory(new))
    return found


def lend_(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Give tensors the memory of others."""
    for tensor, new in pairs:
        tensor.data = new


def _is_alike(tensor: Tensor, new: Tensor) -> bool:
    return (
        type(tensor.data) is Tensor is type(new)
        and tensor.shape == new.shape
        and tensor.stride() == new.stride()
        and (tensor.dtype, tensor.device) == (new.dtype, new.device)
        and tensor.untyped_storage().nbytes() == tensor.nbytes
        and not tensor.is_shared()
    )


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()

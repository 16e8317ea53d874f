"""Which tensors of a model can lend from what was read for them.

While something is loaded such a tensor has the memory of what was read. Its own is left
as it is: what fails can give it back, and nothing had to be copied for that.
"""

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import Tensor, nn

from diffprune._core.digest import as_bytes
from diffprune.errors import ArgumentError

Lend: TypeAlias = Callable[[Mapping[Tensor, Tensor]], None]
"""What `all_or_nothing` gives to its block."""


def borrowers(
    tensors: Mapping[str, Tensor], read: Mapping[str, Tensor]
) -> dict[Tensor, Tensor]:
    """Which tensors can have which memory for a while.

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


def load_lent_(
    model: nn.Module, state: Mapping[str, Any], lent: Mapping[Tensor, Tensor]
) -> None:
    """Load a state, and keep nothing of it that may be a file mapped into memory.

    Args:
        model: The model; a tensor that has borrowed is not copied.
        state: By name, what was read.
        lent: Tensors, and what they have borrowed.

    Raises:
        ArgumentError: If tensors of the model share memory, and not what was read.
    """
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    model.load_state_dict(
        {name: v if name in own else copy.deepcopy(v) for name, v in state.items()}
    )
    _check_shared(own, state)
    read = {_memory(value) for value in state.values() if isinstance(value, Tensor)}
    # Modules may keep what they are given, where it has not the shape they expect.
    for tensor in (*model.parameters(), *model.buffers()):
        is_plain = type(tensor.data) is Tensor and tensor not in lent
        if is_plain and _memory(tensor) in read:
            tensor.data = tensor.data.clone()


def _check_shared(own: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Refuse different numbers for one place in memory: some are lost by now."""
    plain = {n: t.data for n, t in own.items() if type(t.data) is Tensor}
    owners = Counter(map(_memory, plain.values()))
    for name, tensor in plain.items():
        read = state.get(name)
        if owners[_memory(tensor)] == 1 or not isinstance(read, Tensor):
            continue
        if not _is_same(tensor, read.to(tensor)):
            raise ArgumentError(
                f"`{name}` shares memory with another tensor of the model, and the "
                "file holds other numbers for each.\nGive it memory of its own: "
                "`p.data = p.data.clone()`."
            )


def _is_same(one: Tensor, other: Tensor) -> bool:
    return as_bytes(one.cpu().contiguous()) == as_bytes(other.cpu().contiguous())


def _is_alike(tensor: Tensor, new: Tensor) -> bool:
    return (
        type(tensor.data) is Tensor is type(new)
        and tensor.shape == new.shape
        and tensor.stride() == new.stride()
        and (tensor.dtype, tensor.device) == (new.dtype, new.device)
        and tensor.untyped_storage().nbytes() == tensor.nbytes
        and not tensor.is_inference()
    )


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()

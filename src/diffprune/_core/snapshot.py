"""All that can be reached from some objects, noted so that it can be put back.

Whatever fails half-way leaves everything as it was: the same objects, in the same
places. Only the places are copied, and the numbers of tensors that will be overwritten.
"""

from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass
from typing import Any, Final, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._core.lending import Lend
from diffprune._core.own_modes import enter_own_modes

_OURS: Final = "diffprune."
_Loan: TypeAlias = tuple[Tensor, Tensor, Tensor | None]
"""What a tensor has for a while, its own memory, and its gradient."""


@final
class Snapshot:
    """What modules, optimizers, containers and objects of this library hold.

    Args:
        roots: Where to start. Frozen data, tensors and objects of other libraries are
            noted, and not looked into.
        overwritten: Tensors whose numbers are copied.
    """

    def __init__(
        self, roots: Iterable[object], overwritten: Iterable[Tensor] = ()
    ) -> None:
        self._held: dict[int, tuple[Any, Any]] = {}
        tensors = dict.fromkeys(overwritten)
        self._values = [(t, t.detach().clone(), t.grad) for t in tensors]
        self._loans: dict[Tensor, _Loan] = {}
        waiting = list(roots)
        kinds = dict[type, bool]()  # most of what is held is of few kinds
        for found in waiting:  # it grows meanwhile
            kind = type(found)
            is_open = kinds.get(kind)
            if is_open is None:
                is_open = kinds[kind] = _is_open(kind)
            if is_open and id(found) not in self._held:
                content = _content(found)
                self._held[id(found)] = found, content
                if content:  # most are empty
                    waiting += _items(content)

    def lend_(self, loans: Mapping[Tensor, Tensor]) -> None:
        """Give tensors the memory of others of their shapes, types and layouts."""
        self._loans |= {t: (loan, t.data, t.grad) for t, loan in loans.items()}
        for tensor, loan in loans.items():
            tensor.data = loan

    @torch.no_grad()
    def settle_(self, is_over: Tensor) -> None:
        """Copy what was lent into the tensors' own memory; and one into this tensor.

        A tensor that was given other memory since then keeps that.
        """
        loans = {t: kept for t, (kept, *_) in self._loans.items() if _is_lent(t, kept)}
        self._give_back_(loans)
        new = [*loans.values(), torch.tensor(1, device="cpu")]
        # One call of torch: Ctrl-C comes before it or after it, never in between.
        torch._foreach_copy_([*loans, is_over], new)  # pyright: ignore[reportPrivateImportUsage] - optimizers use it

    def _give_back_(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            tensor.data = self._loans[tensor][1]

    @torch.no_grad()
    def restore_(self) -> None:
        """Put everything back."""
        for found, content in self._held.values():
            _put_back_(found, content)
        self._give_back_(self._loans)
        for tensor, (_, _, grad) in self._loans.items():
            tensor.grad = grad
        for tensor, value, grad in self._values:
            tensor.grad = grad
            if tensor.shape == value.shape:
                tensor.copy_(value)
            else:
                tensor.data = value


@contextmanager
def all_or_nothing(
    *roots: object, overwritten: Iterable[Tensor] = ()
) -> Generator[Lend]:
    """Put everything back that these objects hold if the block raises.

    What is made in the block can be trained, even within `torch.inference_mode()`, and
    numbers keep their precision, even within `torch.autocast()`. The block gets a
    function that lends tensors the memory of others. They have it until the block ends.
    What is in it then is copied into their own, for all in one step.

    Args:
        *roots: Models, optimizers, pruners.
        overwritten: Tensors whose numbers the block may change in place.

    Examples:
        >>> layer = nn.Linear(2, 3)
        >>> weight = layer.weight
        >>> with all_or_nothing(layer):
        ...     layer.weight = nn.Parameter(torch.ones(1, 2))
        ...     raise ValueError("no")
        Traceback (most recent call last):
        ...
        ValueError: no
        >>> layer.weight is weight
        True
    """
    before, is_over = Snapshot(roots, overwritten), None
    try:
        with ExitStack() as stack:
            enter_own_modes(stack)
            is_over = torch.tensor(0, device="cpu")
            yield before.lend_
            before.settle_(is_over)
    except BaseException:
        if not is_over:
            before.restore_()
        raise


def _is_lent(tensor: Tensor, loan: Tensor) -> bool:
    return tensor.data_ptr() == loan.data_ptr() and tensor.shape == loan.shape


def _is_open(kind: type) -> bool:
    """Whether objects of a kind can change, and are looked into."""
    if issubclass(kind, dict | list | set | deque | nn.Module | Optimizer):
        return True
    is_ours = kind.__module__.startswith(_OURS) and kind.__dictoffset__ != 0
    return is_ours and not issubclass(kind, type) and not _is_frozen(kind)


def _is_frozen(kind: type) -> bool:
    return is_dataclass(kind) and kind.__dataclass_params__.frozen  # pyright: ignore[reportAttributeAccessIssue] - every data class has them


def _content(found: Any) -> Any:  # noqa: ANN401 - of any kind
    if isinstance(found, dict):
        return dict(found)
    if isinstance(found, list | set | deque):
        return list(found)
    return type(found), dict(vars(found))


def _items(content: Any) -> Iterable[object]:  # noqa: ANN401 - of any kind
    held = content[1] if isinstance(content, tuple) else content
    return held.values() if isinstance(held, dict) else held


def _put_back_(found: Any, content: Any) -> None:  # noqa: ANN401 - of any kind
    if isinstance(found, dict | set):
        if _differs(found, content):
            found.clear()
            found.update(content)
    elif isinstance(found, list | deque):
        found.clear()
        found.extend(content)
    else:
        kind, held = content
        if type(found) is not kind:  # parametrized layers change their class
            found.__class__ = kind
        vars(found).clear()
        vars(found).update(held)


def _differs(found: Any, content: Any) -> bool:  # noqa: ANN401 - of any kind
    if isinstance(found, set) or len(found) != len(content):
        return True
    pairs = zip(found.items(), content.items(), strict=True)
    return any(a is not c or b is not d for (a, b), (c, d) in pairs)

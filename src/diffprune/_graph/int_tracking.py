"""Where the integers of a forward pass come from.

A traced graph shows `reshape(x, [2, 5, 3, 7])` and hides that the 3 was read from
`self.num_heads` and the 7 computed as `x.shape[2] // self.num_heads`. After a cut those
integers must change, and only their origin says whether and how. While a model is
traced, its integer attributes and the shapes it reads are therefore `TrackedInt`s:
ordinary integers that remember their origin through arithmetic. Each op that they are
passed to carries a note of their sources.
"""

import functools
import operator
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from types import FrameType
from typing import Any, Final, Self, SupportsIndex, TypeAlias, cast

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from diffprune._core.leaves import leaves_of
from diffprune._core.user_warnings import folder_of
from diffprune._graph.int_sources import (
    ARITHMETIC,
    COMPARISONS,
    Attribute,
    Dimension,
    Formula,
    Question,
    SizeLog,
    Source,
)
from diffprune._graph.lines import as_text, note_line_
from diffprune._graph.memories import no_memories

_WIDTH_TUPLES: Final = ("normalized_shape",)  # of torch's layers, those with widths
_MANY: Final = (tuple, list)
_TORCH: Final = folder_of(torch.__file__)


def _arithmetic(
    symbol: str, *, reverse: bool = False
) -> Callable[["TrackedInt", Any], Any]:
    function = ARITHMETIC[symbol]

    def method(self: "TrackedInt", other: Any) -> Any:  # noqa: ANN401 - as int's own
        if isinstance(other, bool) or not isinstance(other, int | float):
            return NotImplemented
        mine, theirs = self.plain(), plain(other)
        value = function(theirs, mine) if reverse else function(mine, theirs)
        if isinstance(other, float):
            return self.used_as_number(value)
        sources = (self.source, source_of(other) or plain(other))
        return TrackedInt(
            value, Formula(symbol, *sources[:: -1 if reverse else 1]), self.log
        )

    return method


def _comparison(symbol: str) -> Callable[["TrackedInt", object], bool]:
    function = COMPARISONS[symbol]

    def method(self: "TrackedInt", other: object) -> bool:
        if isinstance(other, float):
            self.used_as_number(None)
        if isinstance(other, bool) or not isinstance(other, int):
            return function(self.plain(), cast("int", other))
        found = function(self.plain(), plain(other))
        if symbol == "==" and found and isinstance(other, TrackedInt):
            self.log.equal.append((self.source, other.source))
        elif where := _asking_line():
            right = source_of(other) or plain(other)
            self.log.asked.add(Question(symbol, self.source, right, where))
        return found

    return method


def _asking_line() -> str:
    """The line of code that compares; nothing if it is torch's own."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - its only name
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_TORCH):
        return ""
    return as_text(frame.f_code.co_filename, frame.f_lineno)


def _as_number(name: str) -> Callable[..., Any]:
    function = getattr(int, name)

    def method(self: "TrackedInt", *others: Any) -> Any:  # noqa: ANN401 - as int's own
        return self.used_as_number(function(self.plain(), *map(plain, others)))

    return method


class TrackedInt(int):
    """An integer that knows where it was read.

    It does not see floats on its left, as in `1.0 / n`: Python then asks the float
    alone; nor `range(n)`. What that could break is caught when a removal verifies
    itself, and the error names the number.

    Args:
        value: Its value.
        source: Where it was read, or how it was computed.
        log: Told about every use that fixes the value.
    """

    source: Source
    log: SizeLog

    def __new__(cls, value: int, source: Source, log: SizeLog) -> Self:
        """Make an integer; its origin is set beside its value."""
        self = super().__new__(cls, value)
        self.source, self.log = source, log
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copies and pickles are ordinary integers."""
        return int, (self.plain(),)

    def plain(self) -> int:
        """Return the value alone."""
        return int.__int__(self)

    def __hash__(self) -> int:
        """Tell the log when the code looks it up in a set or a dict."""
        found = int.__hash__(self)
        return self.used_as_number(found) if _asking_line() else found

    __add__, __radd__ = _arithmetic("+"), _arithmetic("+", reverse=True)
    __sub__, __rsub__ = _arithmetic("-"), _arithmetic("-", reverse=True)
    __mul__, __rmul__ = _arithmetic("*"), _arithmetic("*", reverse=True)
    __mod__, __rmod__ = _arithmetic("%"), _arithmetic("%", reverse=True)
    __floordiv__ = _arithmetic("//")
    __rfloordiv__ = _arithmetic("//", reverse=True)

    __and__, __rand__ = _as_number("__and__"), _as_number("__rand__")
    __or__, __ror__ = _as_number("__or__"), _as_number("__ror__")
    __xor__, __rxor__ = _as_number("__xor__"), _as_number("__rxor__")
    __rlshift__, __rrshift__ = _as_number("__rlshift__"), _as_number("__rrshift__")
    __invert__ = _as_number("__invert__")
    __pow__, __rpow__ = _as_number("__pow__"), _as_number("__rpow__")
    __truediv__, __rtruediv__ = _as_number("__truediv__"), _as_number("__rtruediv__")
    __int__, __float__ = _as_number("__int__"), _as_number("__float__")
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")
    __eq__ = _comparison("==")

    def __bool__(self) -> bool:
        """Tell the log when the code asks whether it is zero: `if n % 2:`."""
        return self != 0

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __neg__(self) -> Any:  # noqa: ANN401 - tracked, like any difference
        return 0 - self

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self

    def __round__(self, digits: SupportsIndex = 0) -> Self:
        del digits
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __lshift__(self, places: int) -> Any:  # noqa: ANN401 - tracked, like a product
        return self * 2 ** plain(places)

    def __rshift__(self, places: int) -> Any:  # noqa: ANN401 - tracked, like a quotient
        return self // 2 ** plain(places)

    def __divmod__(self, other: Any) -> Any:  # noqa: ANN401 - two tracked numbers
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:  # noqa: ANN401
        return other // self, other % self

    def used_as_number(self, result: Any) -> Any:  # noqa: ANN401 - passed through
        """Note that the size itself, not just a shape, enters the computation."""
        why = f"its length is used as a number: {self.source}"
        where = _asking_line()
        self.log.fixed[self.source] = f"{why} ({where})" if where else why
        return result


def plain(number: Any) -> Any:  # noqa: ANN401 - an int or a float, as it came
    """Return the value of a number alone."""
    return number.plain() if isinstance(number, TrackedInt) else number


def source_of(number: object) -> Source | None:
    """Where a number was read, if it knows."""
    return number.source if isinstance(number, TrackedInt) else None


LABEL: Final = "diffprune_sizes"
TOKEN: Final = "diffprune_token"  # noqa: S105 - the name of a note on a graph node

Labels: TypeAlias = list[tuple[int, Source | None]]
_SHAPE: Final = Tensor.shape.__get__  # pyright: ignore[reportAttributeAccessIssue] - a getter


_COUNTS: Final = (Tensor.numel, Tensor.nelement, torch.numel)
_STRIDES: Final = (Tensor.stride, Tensor.nbytes.__get__)  # pyright: ignore[reportAttributeAccessIssue] - a getter
_SLICING: Final = (Tensor.__getitem__, Tensor.__setitem__)
# What no trace sees, and what has the same values.
_TRACED: Final = {Tensor.data.__get__: Tensor.detach}  # pyright: ignore[reportAttributeAccessIssue] - a getter
_SAME: Final = (*_TRACED, Tensor.detach, torch.detach)


class SizeTracker(TorchFunctionMode):
    """While active inside a trace: shapes are tracked, and ops note their integers."""

    def __init__(self, log: SizeLog, run: str) -> None:
        super().__init__()
        self.log = log
        self._tokens = (f"{run} {number}" for number in count())
        self._origins = WeakTensorKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the op returns
        kwargs = kwargs or {}
        graph = _graph()
        if graph is None:
            return func(*args, **kwargs)
        before = len(graph.nodes)
        out = _TRACED.get(func, func)(*args, **kwargs)
        made = list(islice(reversed(graph.nodes), len(graph.nodes) - before))
        if made:
            note_line_(made, until=__file__)
        if func == _SHAPE or func is Tensor.size:
            return self._track_shape(args[0], out, *args[1:], **kwargs)
        if func in _SAME:  # often for its shape alone, and nodes without use are gone
            self._origins[out] = self._origins.get(args[0], args[0])
        if func in _COUNTS:
            return functools.reduce(
                operator.mul, self._track_shape(args[0], args[0].shape), 1
            )
        if func is Tensor.__setitem__ and isinstance(args[2], Tensor):
            self._label_written(args[2], made)
        self._fix_lengths(func, args)
        integers = list(_integers((args, kwargs)))
        if any(isinstance(value, TrackedInt) for value in integers):
            self._label(func, integers, made)
        return out

    def _label(
        self, func: object, integers: Sequence[int], made: Sequence[fx.Node]
    ) -> None:
        """Note the integers on the op that received them."""
        labels = [(plain(number), source_of(number)) for number in integers]
        ops = [node for node in made if node.target is not operator.getitem]
        if len(ops) == 1:
            _notes(ops[0])[LABEL] = labels
        elif func in _SLICING:
            for node in ops:
                own = set(_integers((node.args, node.kwargs)))
                _notes(node)[LABEL] = [label for label in labels if label[0] in own]
        else:
            for number in integers:
                if isinstance(number, TrackedInt):
                    number.used_as_number(number)

    def _label_written(self, value: Tensor, made: Sequence[fx.Node]) -> None:
        """Note the lengths in the view by which torch assigns without leading ones."""
        for node in made:
            if node.target is torch.ops.aten.view.default:
                lengths = self._track_shape(value, value.shape)
                kept = lengths[value.ndim - len(cast("list[int]", node.args[1])) :]
                _notes(node)[LABEL] = [(plain(n), source_of(n)) for n in kept]

    def _fix_lengths(self, func: object, args: tuple[Any, ...]) -> None:
        """Note lengths that an op reads where no tracker sees it."""
        if func is Tensor.__len__:
            self._fix(args[0], 0, "its length is used as a number: len(...)")
        if func in _STRIDES:
            for dim in range(args[0].ndim):
                self._fix(args[0], dim, "a stride or a size in bytes is made of it")
        if func is F.multi_head_attention_forward:
            for tensor in args[:3]:
                why = "nn.MultiheadAttention computes the size of its heads from it"
                self._fix(tensor, -1, why)

    def _fix(self, tensor: Tensor, dim: int, why: str) -> None:
        """Note a length that was read where no tracker sees it."""
        length = self._track_shape(tensor, tensor.shape)[dim]
        if isinstance(length, TrackedInt):
            self.log.fixed[length.source] = why

    def _track_shape(self, x: Tensor, out: Any, dim: int | None = None) -> Any:  # noqa: ANN401 - an int or a Size
        node = _node(cast("Tensor", self._origins.get(x, x)))
        if node is None or isinstance(out, torch.SymInt):
            return out
        token = _notes(node).setdefault(TOKEN, next(self._tokens))
        if dim is not None:
            return TrackedInt(out, Dimension(token, plain(dim) % x.ndim, out), self.log)
        tracked = (
            TrackedInt(n, Dimension(token, i, n), self.log) for i, n in enumerate(out)
        )
        return torch.Size(tracked)


def labels(node: fx.Node) -> Labels:
    """Integers that were passed to the op of a node, with their sources."""
    return list(_notes(node).get(LABEL, ()))


def token(node: fx.Node) -> str | None:
    """Name under which the shape of the node's tensor was read, if it was."""
    return _notes(node).get(TOKEN)


def _notes(node: fx.Node) -> dict[str, Any]:
    return node.meta.setdefault("custom", {})


def _integers(tree: object) -> Iterator[int]:
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, slice):
            yield from _integers((leaf.start, leaf.stop, leaf.step))
        elif isinstance(leaf, int) and not isinstance(leaf, bool):
            yield leaf


def _graph() -> fx.Graph | None:
    """The graph being traced, if any."""
    mode = get_proxy_mode()
    return None if mode is None else mode.tracer.graph


def _node(tensor: Tensor) -> fx.Node | None:
    """The graph node that computed a tensor."""
    mode = get_proxy_mode()
    if mode is None:
        return None
    proxy = get_proxy_slot(tensor, mode.tracer, None, lambda slot: slot.proxy)
    return None if proxy is None else proxy.node


@contextmanager
def tracked_sizes(model: nn.Module, run: str) -> Generator[SizeLog]:
    """Track the integers of a model while it is traced; put everything back after.

    `run` tells the dimensions of one trace from those of another.
    """
    log = SizeLog()
    with (
        _tracked_attributes(model, log),
        _tracked_forward(model, SizeTracker(log, run)),
        no_memories(model, lambda value: isinstance(value, TrackedInt)),
    ):
        yield log


@contextmanager
def _tracked_attributes(model: nn.Module, log: SizeLog) -> Generator[None]:
    found = [
        (path, module, name, value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if type(value) is int or _may_be_widths(module, name, value)
    ]
    try:
        for path, module, name, value in found:
            vars(module)[name] = _tracked(path, name, value, log)
        yield
    finally:
        for _, module, name, value in found:
            vars(module)[name] = value


def _may_be_widths(module: nn.Module, name: str, value: object) -> bool:
    """Whether several numbers may be widths: torch's own layers hold strides, too."""
    is_torchs = type(module).__module__.partition(".")[0] == "torch"
    return type(value) in _MANY and (name in _WIDTH_TUPLES or not is_torchs)


def _tracked(path: str, name: str, value: Any, log: SizeLog) -> Any:  # noqa: ANN401 - a number, or several
    if isinstance(value, int):
        return TrackedInt(value, Attribute(path, name, value), log)
    names = (f"{name}[{place}]" for place in count())
    return type(value)(
        _tracked(path, entry, number, log) if type(number) is int else number
        for entry, number in zip(names, value, strict=False)
    )


@contextmanager
def _tracked_forward(model: nn.Module, tracker: SizeTracker) -> Generator[None]:
    forward, own = model.forward, vars(model).get("forward")

    @functools.wraps(forward)
    def tracked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the user's
        with tracker:
            returned = forward(*args, **kwargs)
        for number in leaves_of(TrackedInt, returned):
            why = f"its length is returned by the model: {number.source}"
            tracker.log.fixed[number.source] = why
        return returned

    model.forward = tracked
    try:
        yield
    finally:
        del model.forward
        if own is not None:
            model.forward = own

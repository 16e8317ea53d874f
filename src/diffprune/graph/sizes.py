"""Where the integers in a forward pass come from. Knows no axes and no rules.

A traced graph shows `reshape(x, [2, 5, 3, 7])` and hides that the 3 was read from
`self.num_heads` and the 7 computed as `x.shape[2] // self.num_heads`. After a cut those
integers must change, and only their origin says whether and how. While a model is
traced its integer attributes and the shapes it reads are therefore `TrackedInt`s:
ordinary integers that remember their origin through arithmetic.
"""

import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Final, TypeAlias, cast

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

LABEL: Final = "diffprune_sizes"
TOKEN: Final = "diffprune_token"  # noqa: S105 - the name of a note on a graph node


@dataclass(frozen=True)
class Attribute:
    """An integer attribute of a module."""

    module: str
    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name


@dataclass(frozen=True)
class Dimension:
    """One entry of the shape of an intermediate tensor, named by a token."""

    token: str
    dim: int
    value: int

    def __str__(self) -> str:
        return f"shape[{self.dim}]"


@dataclass(frozen=True)
class Formula:
    """Arithmetic on other sources."""

    symbol: str
    left: "Source | int"
    right: "Source | int"

    def __str__(self) -> str:
        return f"({self.left} {self.symbol} {self.right})"


Source: TypeAlias = Attribute | Dimension | Formula

_ARITHMETIC: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def evaluate(
    source: Source | int, values: Callable[[Attribute | Dimension], int]
) -> int:
    """Value of a source when its attributes and dimensions have other values."""
    if isinstance(source, Formula):
        left, right = evaluate(source.left, values), evaluate(source.right, values)
        return _ARITHMETIC[source.symbol](left, right)
    return source if isinstance(source, int) else values(source)


def leaves(source: Source | int) -> Iterator[Attribute | Dimension]:
    """The attributes and dimensions a source is computed from."""
    if isinstance(source, Formula):
        yield from leaves(source.left)
        yield from leaves(source.right)
    elif not isinstance(source, int):
        yield source


@dataclass
class SizeLog:
    """What was done with tracked integers, other than passing them to an op.

    Attributes:
        fixed: Integers that may not change, and why.
        equal: Pairs that were found equal.
    """

    fixed: dict[Source, str] = field(default_factory=dict[Source, str])
    equal: list[tuple[Source, Source]] = field(
        default_factory=list[tuple[Source, Source]]
    )


def _arithmetic(
    symbol: str, *, reverse: bool = False
) -> Callable[["TrackedInt", Any], Any]:
    function = _ARITHMETIC[symbol]

    def method(self: "TrackedInt", other: Any) -> Any:  # noqa: ANN401 - as int's own
        if isinstance(other, bool) or not isinstance(other, int):
            if isinstance(other, float):
                return self._as_number(
                    function(other, int(self))
                    if reverse
                    else function(int(self), other)  # pyright: ignore[reportArgumentType] - float arithmetic
                )
            return NotImplemented
        theirs = other.source if isinstance(other, TrackedInt) else other
        operands = (theirs, self.source) if reverse else (self.source, theirs)
        value = (
            function(int(other), int(self))
            if reverse
            else function(int(self), int(other))
        )
        return TrackedInt(value, Formula(symbol, *operands), self.log)

    return method


class TrackedInt(int):
    """An integer that knows where it was read."""

    source: Source
    log: SizeLog

    def __new__(cls, value: int, source: Source, log: SizeLog) -> "TrackedInt":
        self = super().__new__(cls, value)
        self.source, self.log = source, log
        return self

    def __getnewargs__(self) -> tuple[int, Source, SizeLog]:
        return int(self), self.source, self.log

    __hash__ = int.__hash__
    __add__, __radd__ = _arithmetic("+"), _arithmetic("+", reverse=True)
    __sub__, __rsub__ = _arithmetic("-"), _arithmetic("-", reverse=True)
    __mul__, __rmul__ = _arithmetic("*"), _arithmetic("*", reverse=True)
    __mod__, __rmod__ = _arithmetic("%"), _arithmetic("%", reverse=True)
    __floordiv__ = _arithmetic("//")
    __rfloordiv__ = _arithmetic("//", reverse=True)

    def __eq__(self, other: object) -> bool:
        equal = int.__eq__(self, other)  # pyright: ignore[reportArgumentType] - any object may come
        if equal is True and isinstance(other, TrackedInt):
            self.log.equal.append((self.source, other.source))
        return equal

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __float__(self) -> float:
        return self._as_number(int.__float__(self))

    def __truediv__(self, other: float) -> float:
        return self._as_number(int.__truediv__(self, cast("int", other)))

    def __rtruediv__(self, other: float) -> float:
        return self._as_number(int.__rtruediv__(self, cast("int", other)))

    def __pow__(self, other: float, modulo: None = None) -> Any:  # noqa: ANN401 - as int's
        return self._as_number(int.__pow__(self, cast("int", other), modulo))

    def _as_number(self, result: Any) -> Any:  # noqa: ANN401 - passed through
        """Note that the size itself, not just a shape, enters the computation."""
        self.log.fixed[self.source] = f"its length is used as a number: {self.source}"
        return result


class SizeTracker(TorchFunctionMode):
    """While active inside a trace: shapes are tracked, and ops note their integers."""

    def __init__(self, log: SizeLog, run: str) -> None:
        super().__init__()
        self.log = log
        self._tokens = (f"{run} {number}" for number in count())

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the op returns
        kwargs = kwargs or {}
        graph = _graph()
        before = len(graph.nodes) if graph else 0
        out = func(*args, **kwargs)
        if graph is None:
            return out
        if func == torch.Tensor.shape.__get__ or func is torch.Tensor.size:
            return self._track_shape(args[0], out, *args[1:], **kwargs)
        if func is F.multi_head_attention_forward:
            self._fix_widths(args[:3])
        integers = list(_integers((args, kwargs)))
        if any(isinstance(value, TrackedInt) for value in integers):
            made = [*islice(reversed(graph.nodes), len(graph.nodes) - before)]
            ops = [node for node in made if node.target is not operator.getitem]
            # Which op of several an integer went to is unknown, except for indexing.
            if len(ops) == 1 or func is torch.Tensor.__getitem__:
                sources = [(int(i), getattr(i, "source", None)) for i in integers]
                for node in ops:
                    node.meta.setdefault("custom", {})[LABEL] = sources
        return out

    def _fix_widths(self, tensors: tuple[Tensor, ...]) -> None:
        """Note widths that this function checks where no tracker sees it."""
        for tensor in tensors:
            (width,) = self._track_shape(tensor, tensor.shape)[-1:]
            if isinstance(width, TrackedInt):
                why = "nn.MultiheadAttention computes the size of its heads from it"
                self.log.fixed[width.source] = why

    def _track_shape(self, x: Tensor, out: Any, dim: int | None = None) -> Any:  # noqa: ANN401
        node = _node(x)
        if node is None or isinstance(out, torch.SymInt):
            return out
        notes = node.meta.setdefault("custom", {})
        token = notes.setdefault(TOKEN, next(self._tokens))
        if dim is not None:
            return TrackedInt(out, Dimension(token, dim % x.ndim, out), self.log)
        tracked = (
            TrackedInt(n, Dimension(token, i, n), self.log) for i, n in enumerate(out)
        )
        return torch.Size(tracked)


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
def tracked_sizes(model: nn.Module, run: str) -> Iterator[SizeLog]:
    """Track the integers of a model while it is traced; put everything back after.

    `run` tells the dimensions of one trace from those of another.
    """
    log, replaced = SizeLog(), list[tuple[nn.Module, str, int]]()
    forward, had_forward = model.forward, "forward" in vars(model)

    @functools.wraps(forward)
    def tracked_forward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the user's
        with SizeTracker(log, run):
            return forward(*args, **kwargs)

    try:
        for path, module in model.named_modules():
            for name, value in list(vars(module).items()):
                if type(value) is int:
                    replaced.append((module, name, value))
                    source = Attribute(path, name, value)
                    vars(module)[name] = TrackedInt(value, source, log)
        model.forward = tracked_forward
        yield log
    finally:
        if had_forward:
            model.forward = forward
        else:
            del model.forward
        for module, name, value in replaced:
            vars(module)[name] = value

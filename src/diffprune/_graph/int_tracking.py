"""Where the integers of a forward pass come from. Knows no axes and no rules.

While a model is traced its integer attributes, and the shapes it reads, are
`TrackedInt`s; each op they are passed to carries a note of their sources.
"""

import functools
import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from diffprune._graph.tracked_int import (
    Attribute,
    Dimension,
    SizeLog,
    Source,
    TrackedInt,
    plain,
    source_of,
)

LABEL: Final = "diffprune_sizes"
TOKEN: Final = "diffprune_token"  # noqa: S105 - the name of a note on a graph node

Labels: TypeAlias = list[tuple[int, Source | None]]
_SHAPE: Final = Tensor.shape.__get__  # pyright: ignore[reportAttributeAccessIssue] - a getter


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
        if func == _SHAPE or func is Tensor.size:
            return self._track_shape(args[0], out, *args[1:], **kwargs)
        if func is Tensor.numel:
            return functools.reduce(
                operator.mul, self._track_shape(args[0], args[0].shape), 1
            )
        if func is Tensor.__len__:
            self._fix(args[0], 0, "its length is used as a number: len(...)")
        if func is F.multi_head_attention_forward:
            for tensor in args[:3]:
                why = "nn.MultiheadAttention computes the size of its heads from it"
                self._fix(tensor, -1, why)
        integers = list(_integers((args, kwargs)))
        if any(isinstance(value, TrackedInt) for value in integers):
            made = islice(reversed(graph.nodes), len(graph.nodes) - before)
            self._label(func, integers, list(made))
        return out

    def _label(
        self, func: object, integers: Sequence[int], made: Sequence[fx.Node]
    ) -> None:
        """Note the integers on the op that received them."""
        labels = [(plain(number), source_of(number)) for number in integers]
        ops = [node for node in made if node.target is not operator.getitem]
        if len(ops) == 1:
            _notes(ops[0])[LABEL] = labels
        elif func is Tensor.__getitem__:
            for node in ops:
                own = set(_integers((node.args, node.kwargs)))
                _notes(node)[LABEL] = [label for label in labels if label[0] in own]
        else:
            for number in integers:
                if isinstance(number, TrackedInt):
                    number.used_as_number(number)

    def _fix(self, tensor: Tensor, dim: int, why: str) -> None:
        """Note a length that was read where no tracker sees it."""
        length = self._track_shape(tensor, tensor.shape)[dim]
        if isinstance(length, TrackedInt):
            self.log.fixed[length.source] = why

    def _track_shape(self, x: Tensor, out: Any, dim: int | None = None) -> Any:  # noqa: ANN401 - an int or a Size
        node = _node(x)
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
    ):
        yield log


@contextmanager
def _tracked_attributes(model: nn.Module, log: SizeLog) -> Generator[None]:
    found = [
        (path, module, name, value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if type(value) is int
    ]
    try:
        for path, module, name, value in found:
            vars(module)[name] = TrackedInt(value, Attribute(path, name, value), log)
        yield
    finally:
        for _, module, name, value in found:
            vars(module)[name] = value


@contextmanager
def _tracked_forward(model: nn.Module, tracker: SizeTracker) -> Generator[None]:
    forward, own = model.forward, vars(model).get("forward")

    @functools.wraps(forward)
    def tracked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the user's
        with tracker:
            return forward(*args, **kwargs)

    model.forward = tracked
    try:
        yield
    finally:
        del model.forward
        if own is not None:
            model.forward = own

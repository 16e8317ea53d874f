"""What torch is told while it exports a model.

Two things. It may leave out what nobody reads from a trace, which takes a good part of
its time. And its own layers go past their questions about the values of tensors, which
a trace does not have. Both change what belongs to the whole process: open them in one
thread at a time.
"""

import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from torch import Tensor
from torch.distributions import Distribution
from torch.fx import config
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental import proxy_tensor
from torch.nn.modules import transformer

_Setting: TypeAlias = tuple[Any, str, Any]
"""Where torch looks, under which name, and what it finds for a while."""


def _nothing(*_: object, **__: object) -> None:
    """In place of a description of a tensor."""


def _is_said_to_be_causal(
    mask: Tensor | None,
    is_causal: bool | None = None,  # noqa: FBT001 - torch's own signature
    size: int | None = None,
) -> bool:
    """Go by what the caller says; a mask that nothing is said about is read."""
    del mask, size
    return bool(is_causal)


_LEAN: Final[Sequence[_Setting]] = (
    (config, "do_not_emit_stack_traces", True),
    (proxy_tensor, "_extract_tensor_metadata", _nothing),
)
# A transformer asks whether a mask is causal, to be faster; a distribution whether its
# parameters are possible, to refuse them. Whatever the answer, they compute the same.
_ANSWERS: Final[Sequence[_Setting]] = (
    (transformer, "_detect_is_causal_mask", _is_said_to_be_causal),
    (Distribution, "_validate_args", False),
)


@contextmanager
def lean_export() -> Generator[None]:
    """Export only what a trace is read for, while this is open.

    An export notes the stack of every call as text, and describes each tensor twice. It
    makes many objects, and looking for garbage among them finds little.

    Examples:
        >>> with lean_export():
        ...     gc.isenabled()
        False
        >>> gc.isenabled()
        True
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        # The code of a graph is made when it is run, and none is.
        with _told(_LEAN), _use_lazy_graph_module(should_use=True):
            yield
    finally:
        if was_collecting:
            gc.enable()


@contextmanager
def answered_questions() -> Generator[None]:
    """Answer what torch asks about values without looking, while this is open.

    Examples:
        >>> before = Distribution._validate_args
        >>> with answered_questions():
        ...     Distribution._validate_args
        False
        >>> Distribution._validate_args == before
        True
    """
    with _told(_ANSWERS):
        yield


@contextmanager
def _told(settings: Sequence[_Setting]) -> Generator[None]:
    """Change settings for a while; another torch may not have all of them."""
    known = [setting for setting in settings if hasattr(*setting[:2])]
    before = [getattr(place, name) for place, name, _ in known]
    try:
        for place, name, value in known:
            setattr(place, name, value)
        yield
    finally:
        for (place, name, _), value in zip(known, before, strict=True):
            setattr(place, name, value)

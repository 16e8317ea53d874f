"""Random numbers that do not depend on how wide a layer is.

A wide layer draws more numbers than a narrow one, so two models of different widths
cannot be compared in train mode with a seed alone. Here every element of a draw is the
same number: a removed unit then leaves those beside it as they were.
"""

import random
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from diffprune._core.randomness import seed_torch_, torch_forked


@contextmanager
def same_draws(seed: int) -> Generator[None]:
    """Draw alike in models of any width, and leave all generators as they were.

    Examples:
        >>> with same_draws(0):
        ...     torch.dropout(torch.ones(2), 0.5, train=True), torch.randn(3)
        (tensor([2., 2.]), tensor([0.5000, 0.5000, 0.5000]))
    """
    with seeded(seed), _Alike():
        yield


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Seed torch, Python and NumPy, and leave all three as they were."""
    state = random.getstate()
    numpy: Any = sys.modules.get("numpy")
    with ExitStack() as after:
        after.enter_context(torch_forked())
        after.callback(random.setstate, state)
        if numpy is not None:
            after.callback(numpy.random.set_state, numpy.random.get_state())
            numpy.random.seed(seed)
        seed_torch_(seed)
        random.seed(seed)
        yield


def _normal(mean: Any = 0.0, std: Any = 1.0, **_: object) -> Any:  # noqa: ANN401 - numbers or tensors
    return mean + std * 0.5


def _uniform(low: float = 0.0, high: float = 1.0, **_: object) -> float:
    return low + (high - low) * 0.4


def _kept(*_: object, **__: object) -> float:
    return 1.0


def _nothing() -> int:
    return 0


def _exponential(rate: float = 1.0, **_: object) -> float:
    return 1 / rate


# What every element of a tensor becomes that is filled in place.
_FILLED: Final[Mapping[str, Callable[..., Any]]] = {
    "bernoulli_": _kept,
    "normal_": _normal,
    "uniform_": _uniform,
    "exponential_": _exponential,
}
# The same for tensors that are made.
_MADE: Final[Mapping[str, Callable[..., Any]]] = {
    "bernoulli": _kept,
    "rand": _uniform,
    "rand_like": _uniform,
    "randn": _normal,
    "randn_like": _normal,
    "randint": _nothing,
    "randint_like": _nothing,
}


def _dropout(_func: object, x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return x.clone(), torch.ones_like(x, dtype=torch.bool)


def _rrelu(func: Callable[..., Tensor], *args: Any) -> Tensor:  # noqa: ANN401 - the op's
    return func(*args[:4], False, *args[5:])  # noqa: FBT003 - `training`


def _normals(func: Callable[..., Tensor], mean: Any, std: Any, *args: Any) -> Tensor:  # noqa: ANN401 - the op's
    out = func(mean, std, *args)
    return out.copy_(torch.as_tensor(_normal(mean, std)))


_SPECIAL: Final[Mapping[str, Callable[..., Any]]] = {
    "native_dropout": _dropout,
    "rrelu_with_noise": _rrelu,
    "normal": _normals,
}


@final
class _Alike(TorchDispatchMode):
    """Replaces what random ops return by one number."""

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an OpOverload
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the op returns
        del types
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in _SPECIAL:
            return _SPECIAL[name](func, *args)
        if name in _FILLED:
            return args[0].copy_(torch.as_tensor(_FILLED[name](*args[1:])))
        with seeded(0):  # what is drawn here must not advance the generator
            out = func(*args, **kwargs)
        return out.fill_(_MADE[name]()) if name in _MADE else out

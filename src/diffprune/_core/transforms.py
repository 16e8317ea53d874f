"""Whether `torch.func` transforms what runs, and how to compute outside of that."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_functorch: Any = torch._C._functorch  # noqa: SLF001  # pyright: ignore[reportAttributeAccessIssue] - nothing public says any of this


def is_transformed() -> bool:
    """Whether a function is being transformed by `torch.func`.

    Examples:
        >>> torch.vmap(lambda x: x * is_transformed())(torch.ones(2))
        tensor([1., 1.])
        >>> is_transformed()
        False
    """
    return _functorch.peek_interpreter_stack() is not None


def is_argument(tensor: Tensor) -> bool:
    """Whether a tensor is an argument of what is being transformed, or made of one.

    Examples:
        >>> x = torch.ones(2)
        >>> torch.vmap(lambda y: y * is_argument(y) + is_argument(x))(x)
        tensor([1., 1.])
    """
    return _functorch.is_functorch_wrapped_tensor(tensor)


@contextmanager
def outside_of_transforms() -> Generator[None]:
    """Compute as if nothing were transformed, within a `with` block.

    What is computed has its usual gradients, and is a constant to the transform.

    Examples:
        >>> def f(x):
        ...     with outside_of_transforms():
        ...         inside = is_transformed()
        ...     return x * inside
        >>> torch.vmap(f)(torch.ones(2))
        tensor([0., 0.])
    """
    if not is_transformed():
        yield
        return
    from torch._functorch import pyfunctorch  # noqa: PLC0415 - slow to import

    with pyfunctorch.temporarily_clear_interpreter_stack():
        yield

"""Trace torch's own code past its questions about the values of tensors.

A transformer asks whether a mask is causal, to be faster; a distribution asks whether
its parameters are possible, to refuse them. Both compute the same whatever the answer
is, and a trace has no values to answer with.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from torch import Tensor
from torch.distributions import Distribution
from torch.nn.modules import transformer


def _is_said_to_be_causal(
    mask: Tensor | None,
    is_causal: bool | None = None,  # noqa: FBT001 - torch's own signature
    size: int | None = None,
) -> bool:
    """Go by what the caller says; a mask that nothing is said about is read."""
    del mask, size
    return bool(is_causal)


# Where torch asks, and the answer; another torch may ask elsewhere.
_ANSWERS: Final[tuple[tuple[Any, str, Any], ...]] = (
    (transformer, "_detect_is_causal_mask", _is_said_to_be_causal),
    (Distribution, "_validate_args", False),
)


@contextmanager
def answered_questions() -> Generator[None]:
    """Answer what torch asks about values without looking, while this is open.

    What it changes belongs to the whole process: open it in one thread at a time.

    Examples:
        >>> from torch.distributions import Normal
        >>> with answered_questions():
        ...     Normal(0.0, 1.0)._validate_args
        False
        >>> Normal(0.0, 1.0)._validate_args
        True
    """
    asked = [entry for entry in _ANSWERS if hasattr(*entry[:2])]
    before = [getattr(place, name) for place, name, _ in asked]
    try:
        for place, name, answer in asked:
            setattr(place, name, answer)
        yield
    finally:
        for (place, name, _), value in zip(asked, before, strict=True):
            setattr(place, name, value)

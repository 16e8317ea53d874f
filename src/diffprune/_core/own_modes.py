"""Compute as it is written, whatever mode of torch the caller is in."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Final

import torch

_DEVICES: Final = ("cpu", "cuda", "mps", "xpu")


@contextmanager
def own_modes() -> Generator[None]:
    """A block whose tensors can be trained, and whose numbers keep their precision.

    Neither holds within `torch.inference_mode()` and `torch.autocast()`. It may be used
    as a decorator, too.

    Examples:
        >>> with torch.inference_mode(), own_modes():
        ...     torch.ones(2).is_inference()
        False
        >>> with torch.autocast("cpu"), own_modes():
        ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
        torch.float32
    """
    with ExitStack() as stack:
        enter_own_modes(stack)
        yield


def enter_own_modes(stack: ExitStack) -> None:
    """The same until a stack ends; for those who may call nothing of ours by then."""
    if torch.is_inference_mode_enabled():
        stack.enter_context(torch.inference_mode(mode=False))
    for device in _DEVICES:
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))

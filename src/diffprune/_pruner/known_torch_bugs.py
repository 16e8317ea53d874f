"""Shapes that torch cannot be trusted with, looked for after a removal; no gates.

On processors, the weight gradient of a strided 1x1 convolution whose images lie with
channels last and have few channels is written past its memory: oneDNN issue 6035. Whole
networks seldom get there, narrow ones do.
"""

import torch
from torch import nn

from diffprune._core.user_warnings import warn


def warn_of_broken_kernels(model: nn.Module) -> None:
    """Say which layers may crash or learn something wrong, and what to do about it."""
    broken = [name for name, module in model.named_modules() if _is_broken(module)]
    if broken and _is_channels_last(model):
        warn(
            f"`{broken[0]}` now has fewer than {_block()} input channels. If they come "
            "last in memory, torch's gradient of such a strided 1x1 convolution is "
            "wrong on a processor, or crashes (oneDNN issue 6035). Type "
            "`.to(memory_format=torch.contiguous_format)` for model and inputs, or "
            f"keep widths from there with `round_to={_block()}`.",
        )


def _is_broken(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (1, 1)
        and max(module.stride) > 1
        and 1 < module.in_channels // module.groups < _block()
        and module.weight.device.type == "cpu"
        and module.weight.dtype == torch.float32
    )


def _block() -> int:
    """Channels that the kernel reads at once."""
    is_wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return 16 if is_wide else 8


def _is_channels_last(model: nn.Module) -> bool:
    return any(
        weight.is_contiguous(memory_format=torch.channels_last)
        and not weight.is_contiguous()
        for weight in model.parameters()
        if weight.dim() == len("NCHW")
    )

"""Random parameter values that leave no constant unnoticed; knows no architecture.

Fresh layers have unit norms and zero statistics, so a norm that was cut wrongly or a
bias that was dropped would not show. Here nothing is 0 or 1, yet outputs stay O(1).
"""

import torch
from torch import Tensor, nn


def _matrix_(value: Tensor) -> None:
    """Scale by the fan-in; a leading 1 marks an additive or per-channel parameter."""
    fan_in = value[0].numel() if value.shape[0] > 1 else 1
    value.normal_(std=fan_in**-0.5)


def _parameter_(name: str, value: Tensor) -> None:
    if value.ndim > 1:
        _matrix_(value)
    elif "bias" in name:
        value.normal_(std=0.3)
    else:
        value.uniform_(0.5, 1.5)


@torch.no_grad()
def randomise_(model: nn.Module) -> nn.Module:
    """Randomise all parameters and running statistics of `model` in place."""
    for name, parameter in model.named_parameters():
        _parameter_(name, parameter)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.3)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    return model

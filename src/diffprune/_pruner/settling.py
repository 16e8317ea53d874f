"""When the last units have left: fold the gates away, and refit what read them.

Nothing is decided any more, so the small model goes on without gates, as fast as if it
had been written so. Its layers are fitted to what they returned before the last units
left, on inputs that training has just used.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from diffprune._choice import Refit, refit_
from diffprune._choice.refit import Kept
from diffprune._graph import ExampleInputs
from diffprune._pruner.gated_model import GatedModel
from diffprune._surgery.apply import named_tensors
from diffprune.errors import ArgumentError


@dataclass(frozen=True)
class BeforeCut:
    """What a refit needs from before a removal.

    Attributes:
        whole: A plain copy of the model.
        inputs: Batches that it has seen.
    """

    whole: nn.Module
    inputs: Sequence[ExampleInputs]


def fold_and_refit_(
    gated: GatedModel[Any],
    kept: Kept,
    before: BeforeCut | None,
    optimizers: Sequence[Optimizer],
) -> Refit | None:
    """Take the gates out of a model for good, and fit its layers.

    Optimizers keep what they remember: momentum is that of the weights before the fit.

    Args:
        gated: The model.
        kept: What the removal kept of each tensor.
        before: The model before that; without it nothing is fitted.
        optimizers: All that train it.

    Returns:
        What was fitted.

    Raises:
        RemovalError: If outputs would change without the gates; nothing has changed.
    """
    gated.fold_(optimizers)
    if before is None:
        return None
    tensors = named_tensors(gated.model)
    values = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    try:
        return refit_(gated.model, before.whole, kept, before.inputs)
    except (ArgumentError, RuntimeError) as error:
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(values[name])
        warnings.warn(
            f"layers were not fitted after the last removal: {error}", stacklevel=6
        )
        return None

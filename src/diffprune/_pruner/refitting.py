"""When units have left for a budget: refit what read them, where that pays.

Layers are fitted to what they returned before, on inputs that training has just used.
Training goes on from there, so what counts is how the model computes while it trains:
batch norms of both models take the statistics of these inputs, because running ones lag
behind weights that change fast, and layers would be fitted to make up for that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # no other name for all of them

from diffprune._choice import Refit, refit_
from diffprune._core.modules import named_tensors
from diffprune._core.user_warnings import warn
from diffprune._graph import ExampleInputs
from diffprune._pruner.gated_model import GatedModel
from diffprune.errors import ArgumentError

ROWS_PER_FEATURE: Final = 4.0
"""What a layer needs to be fitted in a model that still learns.

Few rows are enough to come closer to the model before, and not enough to be as good a
start for training as weights that were learned from all of the data.
"""


@dataclass(frozen=True)
class BeforeCut:
    """What a refit needs from before a removal.

    Attributes:
        whole: A plain copy of the model.
        inputs: Batches that it has seen.
        is_trained: Whether it was trained before the pruner came.
    """

    whole: nn.Module
    inputs: Sequence[ExampleInputs]
    is_trained: bool


def pays(model: nn.Module, *, is_trained: bool) -> bool:
    """Whether a fit makes a better start for the training that follows.

    It does for a model that was trained before. One that still learns gains if it has
    no batch norms; with them it does as well or better without a fit.
    """
    return is_trained or not any(isinstance(m, _BatchNorm) for m in model.modules())


def refit_kept_(gated: GatedModel[Any], before: BeforeCut) -> Refit | None:
    """Fit the layers of a model from which units have just left; what was fitted.

    Optimizers keep what they remember: momentum is that of the weights before the fit.
    If the fit fails, a warning says so, and the model is as it was cut.

    Args:
        gated: The model, with or without its gates.
        before: What it was before.
    """
    plain = gated.without_gates()
    cut = {name: t.detach().clone() for name, t in named_tensors(plain).items()}
    try:
        found = refit_(
            plain,
            before.whole,
            gated.last_cut.tensors,
            before.inputs,
            normed_by_batch=_normed_by_batch(gated.model),
            rows_per_feature=0.0 if before.is_trained else ROWS_PER_FEATURE,
        )
    except (ArgumentError, RuntimeError) as error:
        warn(f"layers were not fitted after a removal: {error}")
        return None
    _take_over_(gated.model, named_tensors(plain), cut)
    return found


def _normed_by_batch(model: nn.Module) -> set[str]:
    """Running means of norms that do without them in training."""
    return {
        f"{name}.running_mean"
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.training
    }


@torch.no_grad()
def _take_over_(
    model: nn.Module, fitted: Mapping[str, Tensor], cut: Mapping[str, Tensor]
) -> None:
    """Change a model with gates as a plain copy of it was changed by a fit.

    In the copy, gates are factors of the weights, and stay such factors.
    """
    for name, tensor in named_tensors(model).items():
        if name in cut and not torch.equal(cut[name], fitted[name]):
            gate = (cut[name] / tensor).nan_to_num(1.0, 1.0, 1.0)
            tensor.copy_(fitted[name] / gate.where(gate != 0, 1.0))

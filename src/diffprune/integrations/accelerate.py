"""Pruning with Accelerate: `save_state` and `load_state` fit whatever was removed."""

from accelerate import Accelerator
from torch import nn
from torch.optim import Optimizer

from diffprune._core.door import door
from diffprune._pruner import Pruner
from diffprune._pruner.state_in_model import StateInModel
from diffprune.integrations._training import check_alone, check_held, set_gates_apart_


@door
def register(
    accelerator: Accelerator, pruner: Pruner[nn.Module], *optimizers: Optimizer
) -> None:
    """Let the state of a pruner be saved and loaded with its model.

    `accelerator.save_state` and `load_state` load a model before anything else, so a
    pruner that is only registered for checkpointing comes too late to cut it. It may be
    registered as well, before or after.

    Args:
        accelerator: The accelerator that saves and loads.
        pruner: The pruner.
        *optimizers: All that train the model, prepared or not. Gates in them are not
            decayed, whatever groups they are in.

    Raises:
        ArgumentError: If no optimizer trains the gates, or several processes train.
    """
    check_alone(accelerator.num_processes)
    check_held(pruner, optimizers)
    for optimizer in optimizers:
        inner = getattr(optimizer, "optimizer", optimizer)
        set_gates_apart_(pruner, inner)
    StateInModel(pruner, lambda: optimizers)

"""Pruning with Accelerate: `save_state` and `load_state` fit whatever was removed."""

from accelerate import Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from diffprune._core.door import door
from diffprune._pruner import Pruner
from diffprune._pruner.state_in_model import StateInModel
from diffprune.errors import ArgumentError
from diffprune.integrations._training import (
    check_held,
    check_processes,
    gate_parameters,
    set_gates_apart_,
)


@door
def register(
    accelerator: Accelerator,
    pruner: Pruner[nn.Module],
    *optimizers: Optimizer,
    model: nn.Module | None = None,
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
        model: What `prepare` has returned for the model of the pruner. It is needed if
            several processes train.

    Raises:
        ArgumentError: If no optimizer trains the gates, if `model` is another one, or
            if several processes train and it is missing, not prepared, or sharded.
    """
    if not optimizers and gate_parameters(pruner):
        raise ArgumentError(
            "`register` was given no optimizer, and some have to train the gates.\n"
            "Pass all of them: `register(accelerator, pruner, optimizer)`."
        )
    check_held(pruner, optimizers)
    _follow_wrapper_(accelerator, pruner, model)
    for optimizer in optimizers:
        inner = getattr(optimizer, "optimizer", optimizer)
        set_gates_apart_(pruner, inner)
    StateInModel(pruner, lambda: optimizers)


def _follow_wrapper_(
    accelerator: Accelerator, pruner: Pruner[nn.Module], model: nn.Module | None
) -> None:
    """Let what `prepare` has put around the model follow removals, and loading."""
    kind = str(accelerator.distributed_type.name)
    check_processes(
        accelerator.num_processes, kind, is_data_parallel=kind.startswith("MULTI_")
    )
    if model is not None and pruner.model not in set(model.modules()):
        raise ArgumentError(
            f"the model of the pruner is not in `model`, a {type(model).__name__}.\n"
            "Pass what `accelerator.prepare` has returned for it."
        )
    if accelerator.num_processes == 1:
        return
    if not isinstance(model, DistributedDataParallel):
        raise ArgumentError(
            f"{accelerator.num_processes} processes train, and what averages their "
            "gradients has to follow removals.\nPass the prepared model: "
            "`register(accelerator, pruner, optimizer, model=model)`."
        )
    pruner.add_wrapper(model)

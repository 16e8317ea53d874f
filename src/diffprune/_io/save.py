"""Write a pruned model into a folder."""

import io
import os
import sys
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._core import files, tensor_files
from diffprune._core.door import door
from diffprune._core.modules import named_tensors
from diffprune._graph import check_plain
from diffprune._io.blueprint import Blueprint
from diffprune._io.saved_optimizer import OptimizerState, pack_state
from diffprune._surgery.optimizer_state import check_trains
from diffprune.errors import ArgumentError
from diffprune.gates.penalty import named_gates


@door
def save_pruned(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    optimizer: Optimizer | None = None,
) -> Path:
    """Write a model that became smaller, so that a fresh one can become it.

    The folder holds `model.safetensors`, every parameter and buffer, and
    `blueprint.json`, every width; nothing is pickled. `load_pruned` reads it into a
    fresh instance of the same class, whatever pruned the model. Models of
    `transformers` get their `config.json` too, and `load_pretrained` reads them.

    Args:
        model: Without gates: what `Pruner.finalize`, `remove` or `compact` returned.
        folder: Where to write. It is made if it does not exist; a model in it is
            replaced.
        optimizer: Written as `optimizer.safetensors`, for further training. Its state
            of gates, which the model no longer has, is left out.

    Returns:
        The folder.

    Raises:
        ArgumentError: If the model has gates or is wrapped, or holds something that is
            neither a tensor nor a width; nothing was written.
        StorageError: If files cannot be written; earlier ones are as they were.

    Examples:
        >>> import tempfile, torch
        >>> import diffprune as dp
        >>> make = lambda: nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> keep = {"0": torch.tensor([True, False, True, True, False])}
        >>> small = dp.remove(make(), torch.rand(2, 3), keep=keep)
        >>> folder = save_pruned(small, tempfile.mkdtemp())
        >>> dp.load_pruned(make(), folder)[0]
        Linear(in_features=3, out_features=3, bias=True)
    """
    _check(model)
    if optimizer is not None:
        check_trains(optimizer, model)
    state = None if optimizer is None else OptimizerState.of(optimizer, model)
    target, blueprint = Path(folder), Blueprint.of(model)
    tensors, text = named_tensors(model), blueprint.to_json()
    own = {name: t for name, t in tensors.items() if name not in blueprint.tied}
    weights = tensor_files.packed(own, text)
    contents = {
        target / files.WEIGHTS: weights,
        target / files.BLUEPRINT: text.encode(),
    }
    if state is not None:
        # Of these very weights: those of a later save may have the same blueprint.
        beside = text + tensor_files.stored_digest(io.BytesIO(weights))
        contents[target / files.OPTIMIZER] = pack_state(state, beside)
    files.write_files(contents)
    if _is_pretrained(model):
        _write_config(model, target)
    if state is None:
        files.remove(target / files.OPTIMIZER)
    return target


def _check(model: nn.Module) -> None:
    check_plain(model)
    gates = named_gates(model)
    if gates:
        raise ArgumentError(
            f"the model still has gates: {', '.join(f'`{name}`' for name in gates)}.\n"
            "Save what `pruner.finalize()` returns; to continue a run that is not "
            "over, use `save_checkpoint`."
        )
    for path, module in model.named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise ArgumentError(
                f"`{path}` keeps extra state that may be anything, and only tensors "
                "can be stored. Make it a buffer: `register_buffer`."
            )
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor) or value.is_quantized:
            raise ArgumentError(
                f"`{name}` in the state of the model is no plain tensor (quantized "
                "layers keep their weights like that), and only those can be stored.\n"
                "Save the model before it is quantized."
            )


def _is_pretrained(model: nn.Module) -> TypeGuard[Any]:
    """Whether this is a model of transformers; without importing it to find out."""
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(model, transformers.PreTrainedModel)


def _write_config(model: Any, folder: Path) -> None:  # noqa: ANN401 - of an optional library
    model.config.architectures = [type(model).__name__]
    with files.storing(folder):
        model.config.save_pretrained(folder)
        if model.can_generate():
            model.generation_config.save_pretrained(folder)

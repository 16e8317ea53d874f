"""Models of transformers: pruned by its Trainer, and loaded by one call.

Knows its configs, not its layers.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open
from safetensors.torch import load_file

from diffprune._core.door import door
from diffprune._core.files import WEIGHTS, reading
from diffprune._io.gated_state import KEY, load_plain_
from diffprune._io.load import load_pruned
from diffprune.errors import ArgumentError, MissingFileError, MissingPackageError

if TYPE_CHECKING:
    from diffprune.integrations._hf_trainer import Pruning

__all__ = ["Pruning", "load_pretrained"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what a module gives is not typed
    """Import the callback only when it is asked for: it needs the library."""
    if name != "Pruning":
        raise AttributeError(name)
    _transformers()
    from diffprune.integrations._hf_trainer import Pruning  # noqa: PLC0415 - see above

    return Pruning


@door
def load_pretrained(folder: str | os.PathLike[str]) -> Any:  # noqa: ANN401 - of an optional library
    """Build the model that a folder describes, and load its pruned weights.

    Args:
        folder: What `save_pruned` wrote for a model of `transformers`, with the
            `config.json` of the model before it was pruned. Or a checkpoint of a
            `Trainer` with `Pruning`, or what `save_pretrained` wrote in between: then
            gates become weights.

    Returns:
        The `PreTrainedModel`, in eval mode, on the CPU.

    Raises:
        MissingPackageError: If `transformers` is not installed.
        ArgumentError: If the class is not one of `transformers`, or as `load_pruned`.
        MissingFileError: If the folder does not hold such files.
    """
    source = Path(folder)
    with reading(source):
        has_config = (source / "config.json").is_file()
    if not has_config:
        raise MissingFileError(
            f"`{source}` has no `config.json`. For a model of your own, write "
            "`load_pruned(YourModel(...), folder)`."
        )
    transformers = _transformers()
    config = transformers.AutoConfig.from_pretrained(source)
    model = _class(transformers, config)(config)
    if _is_gated(source / WEIGHTS):
        _load_gated_(model, source / WEIGHTS)
    else:
        model = load_pruned(model, source)
    if (source / "generation_config.json").is_file():
        settings = transformers.GenerationConfig.from_pretrained(source)
        model.generation_config = settings
    return model.eval()


def _is_gated(path: Path) -> bool:
    if not path.is_file():
        return False
    with safe_open(path, framework="pt") as file:
        return KEY in file.keys()  # noqa: SIM118 - a file is no mapping


def _load_gated_(model: Any, path: Path) -> None:  # noqa: ANN401 - as above
    state = load_file(path)
    load_plain_(model, state)
    dtypes = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    model.to(*dtypes if len(dtypes) == 1 else ())
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = set(model.all_tied_weights_keys)
    if unexpected or set(missing) - tied:
        raise ArgumentError(
            f"`{path}` is of another model: it lacks {sorted(set(missing) - tied)} and "
            f"has {unexpected} that nothing asks for."
        )


def _transformers() -> Any:  # noqa: ANN401 - an optional library
    try:
        import transformers  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise MissingPackageError(
            "the model is one of `transformers`, which is not installed.\n"
            "Install it with `pip install transformers`."
        ) from error
    return transformers


def _class(transformers: Any, config: Any) -> Any:  # noqa: ANN401 - as above
    """The class a config names, if transformers itself has one of that name."""
    name = next(iter(config.architectures or []), "")
    found = getattr(transformers, name, None) if name.isidentifier() else None
    is_model = isinstance(found, type) and issubclass(
        found, transformers.PreTrainedModel
    )
    if not is_model:
        raise ArgumentError(
            f"the config names the model class {name!r}, which is none of "
            "`transformers`. Build the model yourself: `load_pruned(model, folder)`."
        )
    return found

"""Pruned models of transformers, by one call. Knows its configs, not its layers."""

import os
from pathlib import Path
from typing import Any

from diffprune._io.load import load_pruned
from diffprune.errors import ArgumentError, MissingPackageError


def load_pretrained(folder: str | os.PathLike[str]) -> Any:  # noqa: ANN401 - of an optional library
    """Build the model that a folder describes, and load its pruned weights.

    Args:
        folder: What `save_pruned` wrote for a model of `transformers`: with the
            `config.json` of the model before it was pruned.

    Returns:
        The `PreTrainedModel`, in eval mode, on the CPU.

    Raises:
        MissingPackageError: If `transformers` is not installed.
        ArgumentError: If the class is not one of `transformers`, or as `load_pruned`.
        FileNotFoundError: If the folder does not hold such files.
    """
    source = Path(folder)
    if not (source / "config.json").is_file():
        raise FileNotFoundError(
            f"`{source}` has no `config.json`. For a model of your own, write "
            "`load_pruned(YourModel(...), folder)`."
        )
    transformers = _transformers()
    config = transformers.AutoConfig.from_pretrained(source)
    model = load_pruned(_class(transformers, config)(config), source)
    if (source / "generation_config.json").is_file():
        settings = transformers.GenerationConfig.from_pretrained(source)
        model.generation_config = settings
    return model.eval()


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

"""Make the model that a TARGET names, with example inputs where they are known."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from diffprune._core.arguments import did_you_mean
from diffprune._graph import ExampleInputs
from diffprune.errors import ArgumentError, MissingPackageError, UnknownNameError
from diffprune.lab.cli.example_inputs import parse_inputs
from diffprune.lab.runs.import_spec import make_module
from diffprune.lab.runs.rebuild import rebuild
from diffprune.lab.runs.records import read_run

_IMAGE: Final = (3, 224, 224)


@dataclass(frozen=True)
class Target:
    """A model, and inputs that it takes if they are known.

    Attributes:
        model: The model.
        inputs: What it takes.
        worth: For a run, what the units of each gate were worth when it ended.
    """

    model: nn.Module
    inputs: ExampleInputs | None = None
    worth: Mapping[str, float] = field(default_factory=dict[str, float])


def load_target(target: str, task: str | None = None, *, trust: bool = False) -> Target:
    """Make the model that a TARGET names; nothing is downloaded.

    Args:
        target: `file.py:factory`, `package.module:factory`, `timm:NAME`,
            `torchvision:NAME`, `hf:FOLDER`, or a run folder.
        task: For a run folder whose task has moved, where it is now.
        trust: For a run folder, whether to run code outside the present one.

    Raises:
        UnknownNameError: If there is no such model.
        MissingPackageError: If it comes from a package that is not installed.
        ArgumentError: If what is found makes no model.
    """
    if Path(target).is_dir():
        models = rebuild(Path(target), task, trust=trust)
        worth = [epoch.worth for epoch in read_run(target).epochs if epoch.worth]
        return Target(models.small, models.inputs[:1], worth[-1] if worth else {})
    if task is not None:
        raise ArgumentError(
            f"`--task` is for a run folder, which `{target}` is not: leave it out."
        )
    source, colon, name = target.partition(":")
    if not colon:
        raise UnknownNameError(
            f"`{target}` is neither a run folder nor the name of a model.\n"
            "Type `file.py:factory`, `package.module:factory`, `timm:resnet50`, "
            "`torchvision:resnet18`, `hf:folder` or the folder of a run."
        )
    return _SOURCES[source](name) if source in _SOURCES else _from_code(target)


def _from_code(target: str) -> Target:
    return Target(make_module(target))


def _from_timm(name: str) -> Target:
    timm = _import("timm")
    if not timm.is_model(name):
        raise _unknown("timm", name, timm.list_models())
    model = timm.create_model(name, pretrained=False)
    return Target(model, _image(model.pretrained_cfg.get("input_size", _IMAGE)))


def _from_torchvision(name: str) -> Target:
    models = _import("torchvision.models")
    if name not in models.list_models():
        raise _unknown("torchvision", name, models.list_models())
    return Target(models.get_model(name, weights=None), _image(_IMAGE))


def _from_transformers(place: str) -> Target:
    transformers = _import("transformers")
    config = _read_config(transformers, Path(place))
    config.use_cache = False
    # The class that a checkpoint was made with, or else the trunk.
    named = next(iter(config.architectures or ()), None)
    make = getattr(transformers, named or "", transformers.AutoModel.from_config)
    model = make(config)
    return Target(model, _usual_inputs(model))


def _read_config(transformers: Any, place: Path) -> Any:  # noqa: ANN401 - theirs
    path = place / "config.json" if place.is_dir() else place
    if not path.is_file():
        raise UnknownNameError(
            f"there is no `{path}`. Type `hf:` and a folder with a `config.json`, or "
            "that file; models are not downloaded."
        )
    try:
        return transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ArgumentError(f"`{path}` is no configuration: {error}") from error


def _usual_inputs(model: Any) -> ExampleInputs | None:  # noqa: ANN401 - theirs
    size = getattr(model.config, "image_size", None)
    if model.main_input_name == "pixel_values" and size is not None:
        channels = getattr(model.config, "num_channels", 3)
        return {"pixel_values": torch.zeros(1, channels, size, size)}
    if model.main_input_name == "input_ids":
        names = ["input_ids", "decoder_input_ids"]
        asked = names if model.config.is_encoder_decoder else names[:1]
        return parse_inputs([f"{name}=int64:1,16" for name in asked])
    return None


_SOURCES: Final[Mapping[str, Callable[[str], Target]]] = {
    "timm": _from_timm,
    "torchvision": _from_torchvision,
    "hf": _from_transformers,
}


def _image(size: tuple[int, ...]) -> ExampleInputs:
    return torch.zeros(1, *size)


def _import(name: str) -> Any:  # noqa: ANN401 - modules have all kinds of things
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"`{package}` is not installed. Install it with `pip install {package}`."
        ) from error
    except RuntimeError as error:
        raise MissingPackageError(
            f"`{package}` is installed but does not work with this torch: {error}"
        ) from error


def _unknown(source: str, name: str, names: list[str]) -> UnknownNameError:
    hint = did_you_mean(name, names)
    return UnknownNameError(f"{source} has no model `{name}`.{hint}")

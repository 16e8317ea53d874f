"""The state of an optimizer as tensors and JSON.

Parameters go by their names in the model, not by their order, so that the state finds
them again in a fresh one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._core import tensor_files
from diffprune._io.optimizer_fit import fitted
from diffprune._surgery.optimizer_state import NAMES
from diffprune.errors import ArgumentError, MissingFileError

Key: TypeAlias = tuple[str, str]
"""A parameter's name, and what is remembered about it."""

HEADER: Final = "optimizer"


@dataclass(frozen=True)
class OptimizerState:
    """What an optimizer remembers.

    Attributes:
        kind: Name of its class.
        parameters: Names of the parameters of each group.
        options: Learning rate and the like of each group.
        numbers: By parameter and key, what is remembered as a plain value.
        tensors: By parameter and key, what is remembered as a tensor.
    """

    kind: str
    parameters: tuple[tuple[str, ...], ...]
    options: tuple[Mapping[str, Any], ...]
    numbers: Mapping[str, Mapping[str, Any]]
    tensors: Mapping[Key, Tensor]

    @classmethod
    def of(cls, optimizer: Optimizer, model: nn.Module) -> "OptimizerState":
        """Describe an optimizer; what it holds of other models is left out.

        Raises:
            ArgumentError: If it remembers what is neither a tensor nor a plain value.
        """
        groups = [
            (held, _checked(optimizer, options))
            for held, options in _named_groups(optimizer, model)
            if held
        ]
        numbers: dict[str, dict[str, Any]] = {}
        tensors: dict[Key, Tensor] = {}
        for name, parameter in model.named_parameters():
            state = optimizer.state.get(parameter, {})
            own = {key: t for key, t in state.items() if isinstance(t, Tensor)}
            tensors |= {(name, key): tensor for key, tensor in own.items()}
            rest = {key: value for key, value in state.items() if key not in own}
            numbers |= {name: _checked(optimizer, rest)} if rest else {}
        return cls(
            type(optimizer).__name__,
            tuple(held for held, _ in groups),
            tuple(options for _, options in groups),
            numbers,
            tensors,
        )

    def to_torch(self) -> dict[str, Any]:
        """The same in the form of `Optimizer.state_dict`.

        Raises:
            KeyError: If something is remembered about a parameter of no group.
        """
        index = {name: i for i, name in enumerate(chain(*self.parameters))}
        state: dict[int, dict[str, Any]] = {}
        for name, values in self.numbers.items():
            state.setdefault(index[name], {}).update(values)
        for (name, key), tensor in self.tensors.items():
            state.setdefault(index[name], {})[key] = tensor
        groups = [
            {**options, "params": [index[name] for name in held]}
            for held, options in zip(self.parameters, self.options, strict=True)
        ]
        return {"state": state, "param_groups": groups}


def pack_state(state: OptimizerState, beside: str) -> bytes:
    """A file of the state, for beside a model, which this text tells from others."""
    tensors = {f"{name}/{key}": t for (name, key), t in state.tensors.items()}
    data = {key: value for key, value in vars(state).items() if key != "tensors"}
    return tensor_files.packed(tensors, beside, **{HEADER: json.dumps(data)})


def read_state(path: Path, beside: str) -> OptimizerState:
    """Read what `pack_state` wrote; the file may come from anywhere.

    Raises:
        ArgumentError: If the file is damaged, or belongs to another model.
        MissingFileError: If the model was saved without its optimizer.
    """
    if not path.exists():
        raise MissingFileError(
            f"`{path}` does not exist: the model was saved without its optimizer."
        )
    tensors, header = tensor_files.map_tensors(path, beside)
    try:
        state = _read(json.loads(header[HEADER]), tensors)
        state.to_torch()
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"`{path}` is damaged: {error!r}") from error
    return state


def fitting_state(
    state: OptimizerState,
    optimizer: Optimizer,
    model: nn.Module,
    tensors: Mapping[str, Tensor],
) -> dict[str, Any]:
    """What to load, as this optimizer's `load_state_dict` takes it, and keeps it.

    Args:
        state: What was read.
        optimizer: What is to continue.
        model: The model it was made for.
        tensors: What is to take the place of the model's tensors.

    Raises:
        ArgumentError: If they do not fit together; nothing has changed.
    """
    kind = type(optimizer).__name__
    if kind != state.kind:
        raise ArgumentError(f"the saved optimizer is {state.kind}, this one is {kind}.")
    names = tuple(held for held, _ in _named_groups(optimizer, model))
    if names != state.parameters:
        raise ArgumentError(
            "the optimizer was saved with other parameter groups: "
            f"{_count(state.parameters)}, where this one has {_count(names)}.\nMake it "
            "like the saved one, with the same groups in the same order."
        )
    like = [(name, tensors[name]) for name in chain(*state.parameters)]
    saved = fitted(optimizer, state.to_torch(), like)
    own = {key: tensor_files.copied(tensor) for key, tensor in state.tensors.items()}
    return saved | {"state": replace(state, tensors=own).to_torch()["state"]}


def load_state_(
    optimizer: Optimizer, saved: Mapping[str, Any], moved: Mapping[Tensor, Tensor]
) -> None:
    """Give an optimizer the parameters that replaced its own, and the saved state."""
    for group in optimizer.param_groups:
        group["params"] = [moved.get(p, p) for p in group["params"]]
    optimizer.state.clear()
    optimizer.load_state_dict(dict(saved))


def _named_groups(
    optimizer: Optimizer, model: nn.Module
) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """Names of the model's parameters in each group, and the group's options.

    Names that an optimizer has for them are its own, and no options.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [
        (
            tuple(names[p] for p in group["params"] if p in names),
            {key: v for key, v in group.items() if key not in {"params", NAMES}},
        )
        for group in optimizer.param_groups
    ]


def _checked(optimizer: Optimizer, values: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in values.items():
        if not _is_plain(value):
            raise ArgumentError(
                f"{type(optimizer).__name__} keeps `{key}` as {type(value).__name__}, "
                "which a file without pickle cannot hold. Save the model without its "
                "optimizer."
            )
    return dict(values)


def _is_plain(value: object) -> bool:
    many = value if isinstance(value, tuple | list) else (value,)
    return all(isinstance(v, bool | int | float | str | None) for v in many)


def _read(data: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> OptimizerState:
    keys = {name: name.rpartition("/") for name in tensors}
    return OptimizerState(
        str(data["kind"]),
        tuple(tuple(map(str, held)) for held in data["parameters"]),
        tuple(_read_values(options) for options in data["options"]),
        {str(name): _read_values(rest) for name, rest in data["numbers"].items()},
        {(keys[name][0], keys[name][2]): tensor for name, tensor in tensors.items()},
    )


def _read_values(data: Mapping[str, Any]) -> dict[str, Any]:
    read = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    if not all(map(_is_plain, read.values())) or "params" in read:
        raise TypeError(f"expected names and plain values, got {data!r}")
    return read


def _count(groups: tuple[tuple[str, ...], ...]) -> str:
    return " + ".join(str(len(held)) for held in groups) or "none"

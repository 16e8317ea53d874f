"""Modules that pruning leaves in place of others, as data.

A file can only ask for these, by name and with numbers: it never chooses what is run.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from torch import nn

from diffprune._surgery.replacement_modules import Select

Argument: TypeAlias = float | tuple[float, ...]
"""A number, a truth value, or several."""

_POOL: Final = (
    "kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"
)  # fmt: skip
_ARGUMENTS: Final[Mapping[type[nn.Module], tuple[str, ...]]] = {
    nn.Identity: (),
    nn.Threshold: ("threshold", "value", "inplace"),
    nn.MaxPool1d: _POOL,
    nn.MaxPool2d: _POOL,
    nn.MaxPool3d: _POOL,
    nn.ConstantPad3d: ("padding", "value"),
    nn.Sequential: (),
    Select: ("dim",),
}
_KINDS: Final = {kind.__name__: kind for kind in _ARGUMENTS}
_NOT_IN_JSON: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def as_tuple(value: Any) -> Any:  # noqa: ANN401 - anything but a list, as it came
    """A list as a tuple, as which it is written, read and compared."""
    return tuple(value) if type(value) is list else value


@dataclass(frozen=True)
class Plain:
    """A module without parameters: its kind, its arguments, the modules in it."""

    kind: str
    arguments: Mapping[str, Argument]
    parts: tuple["Plain", ...] = ()

    @classmethod
    def of(cls, module: nn.Module) -> "Plain | None":
        """Describe a module; None if it is not one that pruning leaves."""
        names = _ARGUMENTS.get(type(module))
        parts = [cls.of(part) for part in module.children()]
        described = tuple(part for part in parts if part is not None)
        is_empty = isinstance(module, nn.Sequential) and not parts
        if names is None or len(described) < len(parts) or is_empty:
            return None
        arguments = {name: as_tuple(vars(module)[name]) for name in names}
        return cls(type(module).__name__, arguments, described)

    def build(self) -> nn.Module:
        """Make the module; tensors that belong into it are loaded like all others."""
        if self.kind == Select.__name__:
            return Select(**self.arguments, index=None, scale=None)  # pyright: ignore[reportArgumentType] - it was written by one
        return _KINDS[self.kind](
            *(part.build() for part in self.parts), **self.arguments
        )

    def to_dict(self) -> dict[str, Any]:
        """Write as what JSON has."""
        arguments = {name: _written(value) for name, value in self.arguments.items()}
        parts = [part.to_dict() for part in self.parts]
        return {"kind": self.kind, "arguments": arguments, "parts": parts}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Plain":
        """Read what `to_dict` wrote.

        Raises:
            ValueError: If it is not of an allowed kind, with its numbers.
        """
        read = {name: _argument(value) for name, value in data["arguments"].items()}
        parts = tuple(map(cls.from_dict, data["parts"]))
        kind = _KINDS.get(data["kind"])
        is_whole = kind is not None and set(read) == set(_ARGUMENTS[kind])
        if not is_whole or bool(parts) != (kind is nn.Sequential):
            raise ValueError(f"a file may not ask for the module {dict(data)!r}")
        return cls(data["kind"], read, parts)


def _written(value: Argument) -> object:
    """Infinity is a word: JSON has no such number."""
    if isinstance(value, tuple):
        return [_written(number) for number in value]
    return value if math.isfinite(value) else str(value)


def _argument(value: object) -> Argument:
    return tuple(map(_number, value)) if isinstance(value, list) else _number(value)


def _number(value: object) -> float:
    if isinstance(value, str) and value in _NOT_IN_JSON:
        return _NOT_IN_JSON[value]
    if not isinstance(value, bool | int | float):
        raise TypeError(f"expected a number, got {value!r}")
    return value

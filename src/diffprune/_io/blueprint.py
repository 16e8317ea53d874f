"""What a fresh model must change, besides its tensors, to become a saved one.

Knows modules as holders of integers, not how they came to be smaller. A blueprint says
what a model is, not what was done to it, so it fits whatever method pruned it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias, TypeGuard

from torch import Tensor, nn

from diffprune._core.modules import named_tensors
from diffprune._io.plain_modules import Plain, as_tuple
from diffprune.errors import ArgumentError

Size: TypeAlias = int | tuple[int, ...]
FORMAT: Final = "diffprune-pruned-model"
VERSION: Final = 1


@dataclass(frozen=True)
class Blueprint:
    """The widths of a model, and what else pruning changes about it.

    Attributes:
        model: Name of its class, for messages.
        sizes: Integers, and several of them, that modules hold: by path, then by name.
        plain: Modules that may have taken the place of others, by path.
        tied: For every further name of a shared tensor, its first one.
    """

    model: str
    sizes: Mapping[str, Mapping[str, Size]]
    plain: Mapping[str, Plain]
    tied: Mapping[str, str]

    @classmethod
    def of(cls, model: nn.Module) -> "Blueprint":
        """Describe a model."""
        modules = dict(model.named_modules(remove_duplicate=False))
        sizes = {path: sizes_of(module) for path, module in modules.items()}
        return cls(
            type(model).__name__,
            {path: found for path, found in sizes.items() if found},
            _plain(modules),
            _tied(model),
        )

    def to_json(self) -> str:
        """Write as JSON; `from_json` reads it back."""
        plain = {path: module.to_dict() for path, module in self.plain.items()}
        data = {"format": FORMAT, "version": VERSION, **asdict(self), "plain": plain}
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Blueprint":
        """Read what `to_json` wrote; the text may come from anywhere.

        Raises:
            ArgumentError: If it is no blueprint, or one of a later version.
        """
        try:
            data = _loaded(text)
            if data["version"] == VERSION:
                return _read(data)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as e:
            raise ArgumentError(f"this is no blueprint of a pruned model: {e!r}") from e
        raise ArgumentError(
            f"the blueprint has version {data['version']!r}, this diffprune reads "
            f"version {VERSION}. Upgrade diffprune to read it."
        )


def sizes_of(module: nn.Module) -> dict[str, Size]:
    """Integers, tuples and lists of integers that a module holds, by attribute."""
    held = ((name, as_tuple(value)) for name, value in vars(module).items())
    return {name: value for name, value in held if _is_size(value)}


def _is_size(value: object) -> TypeGuard[Size]:
    many = value if type(value) is tuple else (value,)
    return all(type(number) is int for number in many)


def is_inside(name: str, paths: Iterable[str]) -> bool:
    """Whether one of these modules holds what is called so."""
    return any(name.startswith(f"{path}.") for path in paths)


def _plain(modules: Mapping[str, nn.Module]) -> dict[str, Plain]:
    """The outermost plain modules; a model that is one itself has none."""
    found: dict[str, Plain] = {}
    for path, module in modules.items():
        plain = Plain.of(module)
        if path and plain is not None and not is_inside(path, found):
            found[path] = plain
    return found


def _tied(model: nn.Module) -> dict[str, str]:
    first: dict[Tensor, str] = {}
    return {
        name: first[tensor]
        for name, tensor in named_tensors(model).items()
        if first.setdefault(tensor, name) != name
    }


def _loaded(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if data["format"] != FORMAT:
        raise ValueError(f"the format is {data['format']!r}")
    return data


def _read(data: Mapping[str, Any]) -> Blueprint:
    return Blueprint(
        _text(data["model"]),
        {path: dict(_sizes(sizes)) for path, sizes in data["sizes"].items()},
        {path: Plain.from_dict(module) for path, module in data["plain"].items()},
        {name: _text(first) for name, first in data["tied"].items()},
    )


def _sizes(data: Mapping[str, Any]) -> Iterator[tuple[str, Size]]:
    for name, value in data.items():
        size = as_tuple(value)
        if not _is_size(size):
            raise TypeError(f"expected an integer or a list of them, got {value!r}")
        yield name, size


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a name, got {value!r}")
    return value

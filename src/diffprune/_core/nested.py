"""Nested plain values as JSON, their tensors apart, and back. Runs no code.

What JSON has a word for stays as it is. Everything else becomes a dict of one entry,
whose key begins with a mark and says what it was.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from diffprune.errors import ArgumentError

Tree: TypeAlias = Any
"""What `json.dumps` can write."""

_MARK: Final = "!"
_TENSOR: Final = f"{_MARK}tensor"
_MOST_BITS: Final = 8192
"""Of a whole number; Python refuses to read much longer ones as text."""
_NATIVE: Final = frozenset({bool, int, float, str, type(None)})
_TENSORS: Final = (Tensor, nn.Parameter, nn.Buffer)
_MAPPINGS: Final = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_SEQUENCES: Final = {"tuple": tuple, "set": set, "Size": torch.Size}
_WRITERS: Final[Mapping[type, Callable[[Any], Tree]]] = {
    complex: lambda value: [value.real, value.imag],
    bytes: bytes.hex,
    torch.dtype: lambda value: str(value).removeprefix("torch."),
    torch.device: str,
}
_READERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "complex": lambda pair: complex(*pair),
    "bytes": bytes.fromhex,
    "dtype": lambda name: _dtype(getattr(torch, name)),
    "device": torch.device,
}


def take_apart(value: object, name: str = "the value") -> tuple[Tree, list[Tensor]]:
    """Divide a nested value into what JSON can hold, and its tensors.

    Args:
        value: A tensor, a number, text, None, or dicts, lists, tuples and sets of them.
        name: What messages call it.

    Raises:
        ArgumentError: If something else is in it, which a file without pickle cannot
            hold; the message says where.

    Examples:
        >>> take_apart({"a": (1, torch.ones(2))})
        ({'a': {'!tuple': [1, {'!tensor': 0}]}}, [tensor([1., 1.])])
    """
    tensors = list[Tensor]()
    try:
        return _apart(value, name, tensors), tensors
    except RecursionError as error:
        raise ArgumentError(f"{name} is nested too deeply to be saved.") from error


def put_together(tree: Tree, tensors: Sequence[Tensor]) -> Any:  # noqa: ANN401 - of any kind
    """The nested value that `take_apart` divided; the tree may come from anywhere.

    Parameters come back as tensors.

    Raises:
        ArgumentError: If it is no such tree.

    Examples:
        >>> put_together(*take_apart({1: (2, torch.float16)}))
        {1: (2, torch.float16)}
    """
    try:
        return _together(tree, tensors)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ArgumentError(f"the values in it are damaged: {error!r}") from error


def _apart(value: Any, name: str, tensors: list[Tensor]) -> Tree:  # noqa: ANN401 - told apart here
    kind = type(value)
    if kind in _NATIVE:
        _check_length(name, value)
        return value
    if kind in _TENSORS:
        _check_dense(name, value)
        tensors.append(value)
        return {_TENSOR: len(tensors) - 1}
    if kind is list:
        return _items(value, name, tensors)
    if kind in _SEQUENCES.values():
        items = sorted(value, key=repr) if kind is set else value
        return {_MARK + kind.__name__: _items(items, name, tensors)}
    if kind in _MAPPINGS.values():
        return _mapping(value, name, tensors)
    if kind in _WRITERS:
        return {_MARK + kind.__name__: _WRITERS[kind](value)}
    raise ArgumentError(
        f"{name} is a {kind.__module__}.{kind.__qualname__}, which a file without "
        "pickled code cannot hold.\nSave tensors, numbers, text, and dicts, lists "
        "or tuples of them."
    )


def _items(values: Sequence[Any], name: str, tensors: list[Tensor]) -> list[Tree]:
    if _NATIVE.issuperset(map(type, values)):
        for value in values:
            _check_length(name, value)
        return list(values)
    return [_apart(v, f"{name}[{i}]", tensors) for i, v in enumerate(values)]


def _check_dense(name: str, tensor: Tensor) -> None:
    if tensor.is_meta:
        raise ArgumentError(f"{name} is on the meta device and has no values.")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ArgumentError(
            f"{name} is a tensor that is stored in another way than dense.\n"
            "Save `x.to_dense()`, or `x.dequantize()`."
        )


def _check_length(name: str, value: object) -> None:
    if type(value) is int and value.bit_length() > _MOST_BITS:
        raise ArgumentError(f"{name} is a number of too many digits to be saved.")


def _mapping(
    values: Mapping[Any, Any], name: str, tensors: list[Tensor]
) -> dict[str, Tree]:
    found = {k: _apart(v, f"{name}[{k!r}]", tensors) for k, v in values.items()}
    if type(values) is dict and not any(map(_is_marked, found)):
        return found
    keys = [_apart(key, f"a key of {name}", tensors) for key in found]
    return {_MARK + type(values).__name__: [keys, list(found.values())]}


def _is_marked(key: object) -> bool:
    """Whether a key cannot stand in JSON as it is."""
    return type(key) is not str or key.startswith(_MARK)


def _together(tree: Tree, tensors: Sequence[Tensor]) -> Any:  # noqa: ANN401 - of any kind
    if isinstance(tree, list):
        is_plain = _NATIVE.issuperset(map(type, tree))
        return tree if is_plain else [_together(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if not next(iter(tree), "").startswith(_MARK):
        return {key: _together(item, tensors) for key, item in tree.items()}
    ((mark, held),) = tree.items()
    return _marked(mark.removeprefix(_MARK), held, tensors)


def _marked(kind: str, held: Tree, tensors: Sequence[Tensor]) -> object:
    """What JSON has no word for."""
    if kind == "tensor":
        return tensors[_index(held)]
    if kind in _MAPPINGS:
        keys, values = (_together(part, tensors) for part in held)
        return _MAPPINGS[kind](dict(zip(keys, values, strict=True)))
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_together(held, tensors))
    return _READERS[kind](held)


def _index(held: object) -> int:
    if type(held) is not int or held < 0:
        raise ValueError(f"{held!r} is no tensor's number")
    return held


def _dtype(found: object) -> torch.dtype:
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{found!r} is no type of numbers")
    return found

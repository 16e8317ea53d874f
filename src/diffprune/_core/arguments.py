"""What users give, held against an annotation, and refused by name if it is not that.

One checker for all: numbers are finite unless the annotation says otherwise, neither
`True` nor text is one, and text is no list of letters.
"""

import difflib
import inspect
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from diffprune._core.types import Within
from diffprune.errors import ArgumentError

_UNIONS: Final = (typing.Union, types.UnionType)
_TEXT: Final = (str, bytes, bytearray)
_LARGEST: Final = 2**63 - 1
"""What torch can count to."""
FINITE: Final = torch.finfo(torch.float32).max
"""What is more becomes infinite in the numbers that most models have."""
_LONGEST: Final = 60
"""Characters of a value that a message shows."""


def check(name: str, hint: object, value: object) -> None:
    """Refuse a value that is not what an annotation says.

    Raises:
        ArgumentError: If it is not; the message names the argument.
    """
    if not fits(hint, value):
        raise ArgumentError(
            f"{name} must be {described(hint)}, got {shown(value)}."
            + _advice(name, hint, value)
        )


def _advice(name: str, hint: object, value: object) -> str:
    """What to type where only brackets are missing."""
    likely = [one for one in ([value], [[value]]) if fits(hint, one)]
    is_plain = likely and isinstance(value, str | list)
    return f" Type `{name}={shown(likely[0])}`." if is_plain else ""


def count(name: str, value: object, least: int = 1) -> int:
    """A whole number that is not less than `least`; neither `True` nor `2.0` is one.

    Raises:
        ArgumentError: If it is something else.

    Examples:
        >>> count("steps", 3)
        3
    """
    check(name, Annotated[int, Within(least)], value)
    return int(value)  # pyright: ignore[reportArgumentType] - it is one


def number(
    name: str, value: object, least: float = 0.0, most: float = math.inf
) -> float:
    """A finite number in a range; neither text nor `True` is one.

    Raises:
        ArgumentError: If it is something else.

    Examples:
        >>> number("lr", 1e-3)
        0.001
    """
    check(name, Annotated[float, Within(least, most)], value)
    return float(value)  # pyright: ignore[reportArgumentType] - it is one


def fits(hint: Any, value: Any) -> bool:  # noqa: ANN401 - both may be anything
    """Whether a value is what an annotation says.

    What an iterator yields, and what a function returns, is not looked at.

    Examples:
        >>> fits(int, 2), fits(int, True), fits(float, math.nan), fits(str | None, None)
        (True, False, False, True)
        >>> fits(Mapping[str, float], {"lr": "fast"})
        False
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        return any(fits(part, value) for part in _without_text(parts))
    if origin is Annotated:
        return _fits_annotated(parts[0], parts[1:], value)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if isinstance(hint, TypeVar):
        return hint.__bound__ is None or fits(hint.__bound__, value)
    if origin is not None:
        return _fits_generic(origin, parts, value)
    return _fits_plain(hint, value)


def _fits_annotated(hint: object, notes: Sequence[Any], value: Any) -> bool:  # noqa: ANN401 - as above
    ranges = [note for note in notes if isinstance(note, Within)]
    if not ranges:
        is_dense = not isinstance(value, Tensor) or value.layout is torch.strided
        return is_dense and fits(hint, value)
    may_be_infinite = any(one.may_be_infinite for one in ranges)
    is_kind = fits(hint, value) or (may_be_infinite and _is_infinite(value))
    return is_kind and all(one.least <= value <= one.most for one in ranges)


def _fits_plain(hint: Any, value: Any) -> bool:  # noqa: ANN401 - as above
    if hint in _NUMBERS:
        return _NUMBERS[hint](value)
    if hint is None or hint is Any or not isinstance(hint, type):
        return hint is not None or value is None
    if getattr(hint, "_is_protocol", False):
        return _has_members(hint, value)
    return isinstance(value, hint)


def _has_members(protocol: Any, value: object) -> bool:  # noqa: ANN401 - a protocol
    if isinstance(value, type) or _is_no_collection(value):
        return False
    members = [name for kind in protocol.__mro__[:-1] for name in vars(kind)]
    wanted = {n for n in members if n in _DUNDERS or not n.startswith("_")}
    return all(hasattr(value, name) for name in wanted)


def _is_no_collection(value: object) -> bool:
    """Whether it only seems to hold things: text, the names of a dict, one tensor."""
    return isinstance(value, (*_TEXT, Mapping, AbstractSet, Tensor, np.ndarray))


_DUNDERS: Final = {"__call__", "__iter__", "__len__"}


def _fits_generic(origin: Any, parts: tuple[Any, ...], value: Any) -> bool:  # noqa: ANN401 - as above
    if origin in _SPECIAL:
        return _SPECIAL[origin](value, parts)
    if _is_number(value) or isinstance(value, _TEXT) or not isinstance(value, origin):
        return False
    if issubclass(origin, tuple) and parts[-1:] != (...,):
        return len(value) == len(parts) and all(map(fits, parts, value))
    if issubclass(origin, Mapping):
        return all(fits(parts[0], k) and fits(parts[1], v) for k, v in value.items())
    is_plain = issubclass(origin, Sequence | AbstractSet)
    return not is_plain or all(fits(parts[0], item) for item in value)


def _is_number(value: object) -> bool:
    """Whether it is a tensor of one number, which only seems to be an iterable."""
    return isinstance(value, Tensor) and not value.ndim


def _is_path(value: object, _: object) -> bool:
    """Whether it is a name that a file can have."""
    if not isinstance(value, str | os.PathLike):
        return False
    try:
        name = os.fspath(value)
        return isinstance(name, str) and b"\0" not in os.fsencode(name) and name != ""
    except Exception:  # noqa: BLE001 - no name, then, whatever a user's class does
        return False


def _is_kind(value: object, parts: tuple[Any, ...]) -> bool:
    return isinstance(value, type) and issubclass(value, parts[0])


def _can_be_called(value: Any, parts: tuple[Any, ...]) -> bool:  # noqa: ANN401 - as above
    """Whether it is a function that takes as many arguments as it will be given."""
    if not callable(value) or not parts or not isinstance(parts[0], list):
        return callable(value)
    called = value.forward if isinstance(value, nn.Module) else value
    try:
        inspect.signature(called).bind(*parts[0])
    except ValueError:  # some of those in C have no signature
        return True
    except TypeError:
        return False
    return True


_SPECIAL: Final[Mapping[Any, Callable[[Any, tuple[Any, ...]], bool]]] = {
    Callable: _can_be_called, os.PathLike: _is_path, type: _is_kind,
}  # fmt: skip


def _is_whole(value: Any) -> bool:  # noqa: ANN401 - as above
    is_whole = not isinstance(value, bool) and isinstance(value, numbers.Integral)
    return is_whole and abs(int(value)) <= _LARGEST


def _is_real(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Real)


def _is_finite(value: Any) -> bool:  # noqa: ANN401 - as above
    return _is_real(value) and abs(value) <= FINITE


def _is_infinite(value: Any) -> bool:  # noqa: ANN401 - as above
    return _is_real(value) and abs(value) > FINITE


_NUMBERS: Final[Mapping[Any, Callable[[Any], bool]]] = {
    int: _is_whole, float: _is_finite,
}  # fmt: skip
_WORDS: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a finite number",
    bool: "True or False",
    str: "text",
    type(None): "None",
    None: "None",
    nn.Module: "a module",
    Tensor: "a tensor",
    os.PathLike: "a path",
    Callable: "a function",
    Mapping: "a dict",
    dict: "a dict",
    Sequence: "a list",
    list: "a list",
    tuple: "a tuple",
    Iterable: "an iterable",
}


def described(hint: Any) -> str:  # noqa: ANN401 - an annotation
    """What an annotation says, in words.

    Examples:
        >>> described(Sequence[str] | int | None)
        'a list of text, a whole number or None'
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        return _either([described(part) for part in _without_text(parts)])
    if origin is Annotated:
        return _described_range(parts[0], parts[1:])
    if origin is Literal:
        return _either([repr(part) for part in parts])
    if isinstance(hint, TypeVar):
        return described(hint.__bound__)
    kind = _WORDS.get(origin or hint) or _named(getattr(hint, "__name__", str(hint)))
    return kind + _contents(origin, parts)


def _described_range(hint: object, notes: Sequence[object]) -> str:
    ranges = [note for note in notes if isinstance(note, Within)]
    words = described(hint)
    if any(one.may_be_infinite for one in ranges):
        words = words.replace("finite ", "")
    return " ".join(filter(None, [words, *map(str, ranges)]))


def _named(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOU' else 'a'} `{name}`"


def _without_text(parts: tuple[Any, ...]) -> list[Any]:
    """Alternatives; a path may be given as text, and is a path for all that."""
    is_path = any(typing.get_origin(part) is os.PathLike for part in parts)
    return [part for part in parts if not (is_path and part is str)]


def _contents(origin: Any, parts: tuple[Any, ...]) -> str:  # noqa: ANN401 - as above
    if origin is Callable and parts and isinstance(parts[0], list):
        many = len(parts[0])
        return f" of {many} argument{'' if many == 1 else 's'}"
    is_container = isinstance(origin, type) and issubclass(origin, Iterable)
    if not is_container or not parts or parts[0] is Any:
        return ""
    if issubclass(origin, Mapping) and parts[1] is Any:
        return f" whose keys are {described(parts[0])}"
    if issubclass(origin, Mapping):
        return f" from {described(parts[0])} to {described(parts[1])}"
    return f" of {described(parts[0])}"


def _either(words: Sequence[str]) -> str:
    different = list(dict.fromkeys(words))
    return " or ".join(filter(None, [", ".join(different[:-1]), different[-1]]))


def shown(value: object) -> str:
    """A value for a message: itself if it is short, otherwise what it is."""
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"a tensor of {kind} of shape {tuple(value.shape)}"
    if isinstance(value, type):
        return f"the class `{value.__name__}`"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - whatever a user's class does, we have to answer
        return _named(type(value).__name__)
    is_short = len(text) <= _LONGEST and "\n" not in text and " at 0x" not in text
    return text if is_short else _named(type(value).__name__) + _first_entry(value)


def _first_entry(value: object) -> str:
    """What the first of many entries is: others are mostly of its kind."""
    if not isinstance(value, dict) or not value:
        return ""
    key, held = next(iter(cast("dict[object, object]", value).items()))
    return f" with {shown(held)} for {shown(key)}"


def did_you_mean(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """What to add to a message about a name that there is not, if others are near.

    Args:
        name: What was given.
        names: What there is.
        cutoff: How near, from 0 to 1.

    Examples:
        >>> did_you_mean("strenght", ["strength", "budget"])
        ' Did you mean `strength`?'
        >>> did_you_mean("x", ["strength", "budget"])
        ''
    """
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=cutoff)
    near = ", ".join(f"`{one}`" for one in close)
    return f" Did you mean {near}?" if close else ""

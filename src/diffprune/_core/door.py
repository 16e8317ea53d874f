"""Public functions that check what they are given, by their own annotations.

An annotation says what an argument is; `@door` makes it so. What does not fit is
refused with the name of the argument, before the function has done anything.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

import torch

from diffprune._core.arguments import check, did_you_mean
from diffprune.errors import UnknownNameError

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def door(function: FunctionT) -> FunctionT:
    """Check the arguments of a function against its annotations whenever it is called.

    Code that torch compiles is not checked.

    Examples:
        >>> @door
        ... def cut(width: int) -> int:
        ...     return width
        >>> cut(3)
        3
        >>> cut(2.5)
        Traceback (most recent call last):
        ...
        diffprune.errors.ArgumentError: width must be a whole number, got 2.5.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function's
        if not torch.compiler.is_compiling():
            hints = _hints(function)
            for name, value in _given(function, signature, args, kwargs).items():
                if name in hints:
                    _check(signature.parameters[name], hints[name], value)
        return function(*args, **kwargs)

    return cast("FunctionT", checked)


def check_given(function: Callable[..., Any], given: Mapping[str, object]) -> None:
    """Check options that will be handed on to a function only later.

    Raises:
        UnknownNameError: If the function takes no such option.
        ArgumentError: If one does not fit; the message names it.
    """
    hints = _hints(function)
    for name, value in given.items():
        if name not in hints:
            known = ", ".join(f"`{one}`" for one in hints)
            raise UnknownNameError(f"there is no option `{name}`; there are {known}.")
        check(name, hints[name], value)


def check_fields(record: object) -> None:
    """Check the fields of a data class against their annotations.

    Raises:
        ArgumentError: If one does not fit; the message names it.
    """
    for name, hint in _hints(type(record)).items():
        if typing.get_origin(hint) is not ClassVar:
            check(name, hint, getattr(record, name))


def _check_names(
    function: Callable[..., Any], signature: inspect.Signature, names: Iterable[str]
) -> None:
    """Refuse an option that there is not as Python would, and say what there is."""
    known = signature.parameters
    if any(one.kind is one.VAR_KEYWORD for one in known.values()):
        return
    for name in names:
        if name not in known:
            *_, called = function.__qualname__.removesuffix(".__init__").split(".")
            options = ", ".join(f"`{one}`" for one in known if one != "self")
            raise TypeError(
                f"{called}() got an unexpected keyword argument '{name}'."
                f"{did_you_mean(name, known)} It takes {options}."
            )


def _given(
    function: Callable[..., Any],
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Mapping[str, Any]:
    """What every argument gets; nothing if the call cannot be."""
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError:
        _check_names(function, signature, kwargs)
        return {}  # Python refuses the call itself, and names the function


@functools.cache
def _hints(holder: Callable[..., Any]) -> dict[str, Any]:
    found = typing.get_type_hints(holder, include_extras=True)
    found.pop("return", None)
    return found


def _check(parameter: inspect.Parameter, hint: object, value: Any) -> None:  # noqa: ANN401 - anything may be given
    for one in _values(parameter, value):
        check(parameter.name, hint, one)


def _values(parameter: inspect.Parameter, value: Any) -> Sequence[object]:  # noqa: ANN401 - as above
    if parameter.kind is parameter.VAR_POSITIONAL:
        return list(value)
    if parameter.kind is parameter.VAR_KEYWORD:
        return list(value.values())
    return [] if value is parameter.default else [value]

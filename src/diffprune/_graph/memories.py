"""What memoised functions may remember of a trace: nothing.

`functools.lru_cache` takes equal integers for one. A function that is asked for two
widths that happen to be equal would answer with what it made of the first, and einops
computes every shape in such a function. So it is called anew for integers that know
where they come from. Tensors of a trace are of no use after it, and are forgotten.
"""

import functools
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import _lru_cache_wrapper  # pyright: ignore[reportPrivateUsage]
from typing import Any, Final, TypeAlias

from torch import Tensor, nn

from diffprune._core.leaves import leaves_of

_Place: TypeAlias = tuple[object, str, "_lru_cache_wrapper[Any]"]
"""Who holds a memoised function, under which name, and the function."""

_OTHERS: Final = {"torch", *sys.stdlib_module_names}


@contextmanager
def no_memories(model: nn.Module, is_new: Callable[[object], bool]) -> Generator[None]:
    """Keep memoised functions that the code may call from remembering, while open.

    Args:
        model: What is traced.
        is_new: Whether an argument is one for which a function is called anew.

    Examples:
        >>> double = functools.cache(lambda number: 2 * number)
        >>> forgetful = _forgetful(double, lambda value: value == 3, set())
        >>> forgetful(3), forgetful(4), double.cache_info().currsize
        (6, 8, 1)
    """
    places = [*_in_modules(), *_in_classes(model)]
    strange = set["_lru_cache_wrapper[Any]"]()
    try:
        for holder, name, function in places:
            setattr(holder, name, _forgetful(function, is_new, strange))
        yield
    finally:
        for holder, name, function in places:
            setattr(holder, name, function)
        for function in strange:
            function.cache_clear()


def _in_modules() -> Iterator[_Place]:
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] not in _OTHERS:
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if type(value) is _lru_cache_wrapper:
                    yield module, name, value


def _in_classes(model: nn.Module) -> Iterator[_Place]:
    classes = dict.fromkeys(c for part in model.modules() for c in type(part).__mro__)
    for each in classes:
        for name, value in list(vars(each).items()):
            if type(value) is _lru_cache_wrapper:
                yield each, name, value


def _forgetful(
    function: "_lru_cache_wrapper[Any]",
    is_new: Callable[[object], bool],
    strange: set["_lru_cache_wrapper[Any]"],
) -> Callable[..., Any]:
    """The function, noted as strange if it has come to remember new tensors."""

    @functools.wraps(function)
    def forgetful(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as its own
        if any(map(is_new, _parts((args, *kwargs.values())))):
            return function.__wrapped__(*args, **kwargs)
        before = function.cache_info().misses
        found = function(*args, **kwargs)
        is_known = function.cache_info().misses == before
        if not is_known and leaves_of(Tensor, found):
            strange.add(function)
        return found

    for name in ("cache_info", "cache_clear", "cache_parameters"):
        setattr(forgetful, name, getattr(function, name))
    return forgetful


def _parts(key: object) -> Iterator[object]:
    """What a key is made of: whatever can be one holds its parts in tuples."""
    if isinstance(key, tuple):
        for part in key:
            yield from _parts(part)
    else:
        yield key

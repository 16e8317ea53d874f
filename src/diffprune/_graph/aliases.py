"""Which arguments an op writes to, or returns a view of. Knows schemas, no values."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch._ops import OpOverload


def written(
    op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Arguments whose elements the op changes: the `x` of `x.add_(1)`."""
    return [value for value, writes in _shared(op, args, kwargs) if writes]


def viewed(
    op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Arguments whose memory the output may share: the `x` of `x.view(2, 3)`."""
    return [value for value, writes in _shared(op, args, kwargs) if not writes]


def replaces_first(op: OpOverload) -> bool:
    """Whether later reads of the first argument refer to the output in a trace."""
    name = op.overloadpacket.__name__
    return name.endswith("_") and not name.endswith("__")


def _shared(
    op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[Any, bool]]:
    schema = op._schema  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no public name
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None:
            continue
        if position < len(args):
            yield args[position], argument.alias_info.is_write
        elif argument.name in kwargs:
            yield kwargs[argument.name], argument.alias_info.is_write

"""Make example inputs from `--input`: names, types and shapes."""

import re
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from diffprune._graph import ExampleInputs, check_accepts
from diffprune.errors import ArgumentError

_SPEC: Final = re.compile(
    r"((?P<name>[^\W\d]\w*)=)?((?P<dtype>[a-z]\w*):)?(?P<shape>\d+(,\d+)*)"
)
_HELP: Final = (
    "Type a shape, `--input 1,3,224,224`; for integers its type, `--input int64:2,16`; "
    "for keyword arguments their names, `--input input_ids=int64:2,16`."
)


def parse_inputs(specs: Sequence[str]) -> ExampleInputs:
    """Make a tensor for each specification: positional ones, or all by name.

    Raises:
        ArgumentError: If a specification cannot be read, or only some have a name.

    Examples:
        >>> [x.shape for x in parse_inputs(["2,3", "4"])]
        [torch.Size([2, 3]), torch.Size([4])]
        >>> parse_inputs(["input_ids=int64:1,4"])
        {'input_ids': tensor([[1, 1, 1, 1]])}
    """
    pairs = [_parse(spec) for spec in specs]
    named = {name: tensor for name, tensor in pairs if name}
    if not named:
        return tuple(tensor for _, tensor in pairs)
    if len(named) < len(pairs):
        raise ArgumentError(
            f"give every input a name of its own, or none: {', '.join(specs)}.\n{_HELP}"
        )
    return named


def check_typed(model: nn.Module, inputs: ExampleInputs) -> None:
    """Refuse inputs that a model does not take, and say what else to type.

    Raises:
        ArgumentError: If the model cannot be run on them.
    """
    try:
        check_accepts(model, inputs)
    except ArgumentError as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(f"{reason}\n{_HELP}") from error


def _parse(spec: str) -> tuple[str | None, Tensor]:
    found = _SPEC.fullmatch(spec.replace(" ", ""))
    if found is None:
        raise ArgumentError(f"`{spec}` is no shape.\n{_HELP}")
    dtype = _dtype(found["dtype"] or "float32")
    return found["name"], _tensor([int(n) for n in found["shape"].split(",")], dtype)


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ArgumentError(f"torch has no type `{name}`.\n{_HELP}")
    return dtype


def _tensor(shape: list[int], dtype: torch.dtype) -> Tensor:
    """Noise; as integers, a number that is a valid token and an open mask alike."""
    if not dtype.is_floating_point:
        return torch.ones(shape, dtype=dtype)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(dtype)

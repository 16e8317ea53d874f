"""What a pruner asks of every gate, whoever wrote it, in the words of its author.

A gate is asked before anything is changed, and measured after every cut. What is wrong
with it would be an error deep inside otherwise, or a wrong model.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from diffprune._core.arguments import fits, shown
from diffprune._core.randomness import torch_forked
from diffprune._core.types import Count
from diffprune._graph import mode, unchanged
from diffprune._pruner.placement import Keep
from diffprune.errors import ArgumentError, RemovalError
from diffprune.gates import BaseGate, GateLike, named_gates

_PER_UNIT: Final = ("values", "margin", "is_open", "reopening")
"""What a gate returns a number of for every unit."""
_EXAMPLES: Final = 2


def check_gates(model: nn.Module, gates: Mapping[str, GateLike]) -> None:
    """Refuse gates that answer oddly, or hold what is not theirs.

    The penalty is not asked for: it may depend on what a forward pass leaves behind.

    Args:
        model: The model, with these gates or still without them; it stays as it is.
        gates: By name.

    Raises:
        ArgumentError: If there is such a gate; the message names it.
    """
    for name, gate in gates.items():
        _check_answers(name, gate)
    _check_apart(gates)
    _check_apart_from_model(model, gates)


def check_drawn_for_all(name: str, gate: GateLike) -> None:
    """Refuse a gate that draws for each example where all examples share its values.

    Raises:
        ArgumentError: If it is one.
    """
    if isinstance(gate, BaseGate) and gate.per_example:
        raise ArgumentError(
            f"{_called(name, gate)} draws values for each example, and a gate that a "
            "pruner adds multiplies weights, which all examples share.\nPlace it in "
            "the model by hand, or write `per_example = False` and draw in `values`."
        )


def check_can_stand(model: nn.Module) -> None:
    """Refuse a model with gates in it that nobody could take out again.

    Raises:
        ArgumentError: If there is one; the message names it.
    """
    placed = named_gates(model)
    parts = {part for gate in placed.values() for part in gate.modules()}
    for name, module in model.named_modules():
        if module not in parts and isinstance(module, GateLike):
            raise ArgumentError(
                f"`{name}` in this model, a {type(module).__name__}, has all that a "
                "gate has, and only a `diffprune.gates.BaseGate` can stand in a "
                "model.\nMake its class a subclass of that, or take it out and type "
                "`gate=`: a pruner places any gate itself."
            )


def check_zeros(name: str, gate: GateLike, keep: Keep) -> None:
    """Refuse to remove units that are closed, and that a gate lets through.

    Raises:
        RemovalError: If there is such a unit.
    """
    if keep.all():
        return
    with _asking(gate, training=False):
        values, is_open = gate.values().cpu().double(), gate.is_open().cpu()
    closed = values[~keep & ~is_open]
    if closed.any():
        raise RemovalError(
            f"outputs would change: {_called(name, gate)} says that units are closed "
            f"and multiplies them by {float(closed.abs().max()):g}, in eval mode.\n"
            "Let `values` return exact zeros there: "
            "`values.where(self.is_open(), 0.0)`."
        )


def check_cut(gates: Mapping[str, GateLike], keep: Mapping[str, Keep]) -> None:
    """Refuse gates that do not fit the units that they were told to keep.

    Raises:
        RemovalError: If there is one.
    """
    for name, gate in gates.items():
        if keep[name].all():
            continue
        try:
            _check_shapes(name, gate, int(keep[name].sum()))
        except ArgumentError as error:
            raise RemovalError(
                f"{_called(name, gate)} does not fit what it was told to keep: "
                f"{error}\nLet its `keep_` cut all that it holds per unit. That of "
                "`BaseGate` cuts the gate's own parameters and buffers that have the "
                "units as their first dimension."
            ) from error


def drawn_in_training(gate: GateLike) -> bool:
    """Whether the values of a gate are random in train mode; it stays as it is."""
    if isinstance(gate, BaseGate) and gate.per_example:
        return True
    with _asking(gate, training=True):
        first, second = gate.values(), gate.values()
    return not torch.equal(first, second)


def _check_answers(name: str, gate: GateLike) -> None:
    if not fits(Count, gate.size):
        raise ArgumentError(
            f"`size` of {_called(name, gate)} must be a whole number of at least 1, "
            f"got {shown(gate.size)}.\nWrite a property that returns how many units "
            "there are: `return len(self.logits)`."
        )
    with _asking(gate, training=True):
        _check_units(name, gate, "values", (gate.size,))
        if isinstance(gate, BaseGate) and gate.per_example:
            _check_units(name, gate, "draw", (_EXAMPLES, gate.size), _EXAMPLES)
    answers = _check_shapes(name, gate, gate.size)
    for what, answer in answers.items():
        if answer.isnan().any():
            raise ArgumentError(f"`{what}` of {_called(name, gate)} returns NaN.")


def _check_shapes(name: str, gate: GateLike, size: int) -> dict[str, Tensor]:
    if gate.size != size:
        raise ArgumentError(f"its `size` is {gate.size}, where {size} are left.")
    with _asking(gate, training=False):
        return {what: _check_units(name, gate, what, (size,)) for what in _PER_UNIT}


def _check_units(
    name: str, gate: GateLike, what: str, shape: tuple[int, ...], *args: int
) -> Tensor:
    try:
        found: Any = getattr(gate, what)(*args)
    except Exception as error:
        raise ArgumentError(
            f"`{what}` of {_called(name, gate)} failed: {type(error).__name__}: {error}"
        ) from error
    is_vector = isinstance(found, Tensor) and found.shape == shape
    must_be_bool = what == "is_open"
    is_kind = is_vector and not found.is_complex()
    if not is_kind or (must_be_bool and found.dtype != torch.bool):
        kind = "bool" if must_be_bool else "number"
        raise ArgumentError(
            f"`{what}` of {_called(name, gate)} must return a tensor with one {kind} "
            f"per unit, of shape {shape}, got {shown(found)}."
        )
    return found


@contextmanager
def _asking(gate: GateLike, *, training: bool) -> Generator[None]:
    """Leave no trace of questions in a gate: it may draw, or count its calls."""
    assert isinstance(gate, nn.Module)  # noqa: S101 - checked when it was made
    with (
        torch.no_grad(),
        torch_forked(),
        unchanged(gate),
        mode(gate, training=training),
    ):
        yield


def _check_apart(gates: Mapping[str, GateLike]) -> None:
    """Refuse gates that share what would be cut differently in each."""
    first = dict[Tensor, str]()
    for name, gate in gates.items():
        for key, parameter in _per_unit(gate).items():
            other = first.setdefault(parameter, name)
            if other != name:
                raise ArgumentError(
                    f"the gates of `{other}` and `{name}` share `{key}`, which has a "
                    "number for each unit, and a removal would part them.\nGive each "
                    "gate a parameter of its own. What is no matter of units, a "
                    f"`BaseGate` names in `shared = frozenset({{{key!r}}})`."
                )


def _check_apart_from_model(model: nn.Module, gates: Mapping[str, GateLike]) -> None:
    """Refuse gates that hold parts of the model, which would be cut with both."""
    outside = set(_outside(model, set(map(id, gates.values()))))
    theirs = {p for module in outside for p in module.parameters(recurse=False)}
    for name, gate in gates.items():
        assert isinstance(gate, nn.Module)  # noqa: S101 - checked when it was made
        parts = {key: m for key, m in gate.named_modules() if m in outside}
        parts |= {key: p for key, p in _per_unit(gate).items() if p in theirs}
        for key in parts:
            raise ArgumentError(
                f"{_called(name, gate)} holds `{key}`, which is a part of the model, "
                "and a gate is taken out of it in the end.\nKeep the layer where torch "
                "does not look for parts: `self.layer = [layer]`, and read "
                "`self.layer[0].weight`."
            )


def _outside(module: nn.Module, gates: set[int]) -> Iterator[nn.Module]:
    """What a model is made of beside its gates."""
    if id(module) in gates:
        return
    yield module
    for child in module.children():
        yield from _outside(child, gates)


def _per_unit(gate: GateLike) -> dict[str, nn.Parameter]:
    """Parameters that a gate has a number of for every unit."""
    shared = gate.shared if isinstance(gate, BaseGate) else frozenset[str]()
    found = gate.named_parameters()
    return {n: p for n, p in found if n not in shared and p.shape[:1] == (gate.size,)}


def _called(name: str, gate: GateLike) -> str:
    return f"the gate of `{name}`, a {type(gate).__name__},"

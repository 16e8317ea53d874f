"""The penalty on open gates, and optimizer groups in which gates are not decayed."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

import torch
from torch import Tensor, nn

from diffprune._core.arguments import number
from diffprune._core.door import door
from diffprune._core.types import Amount, Float
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.gates.base import BaseGate
from diffprune.gates.checks import cost_of
from diffprune.gates.protocol import GateLike

GateT = TypeVar("GateT", bound=BaseGate)
Strength = Amount | Sequence[Amount] | Mapping[str, Amount]


@door
def expected_l0(model: nn.Module, strength: Strength) -> Float[Tensor, ""]:
    r"""Expected number of open units: $\sum_j \lambda_j \sum_k P(z_{jk} > 0)$.

    Args:
        model: Holds the gates; a gate that appears twice counts once.
        strength: One number for all gates, one per gate in the order of
            `model.named_modules()`, or one per gate by name. Zero leaves a gate alone.

    Raises:
        UnknownNameError: If a name matches no gate or a gate has no strength.

    Examples:
        >>> from diffprune import Gate
        >>> model = nn.Sequential(nn.Linear(4, 3), Gate(3), nn.Linear(3, 2))
        >>> bool(expected_l0(model, {"1": 1e-3}) > 0)
        True
    """
    gates = named_gates(model)
    strengths = _by_name(strength, tuple(gates))
    costs = [strengths[name] * cost_of(name, gate) for name, gate in gates.items()]
    return torch.stack(costs).sum()


@door
def parameter_groups(
    model: nn.Module,
    *,
    weight_decay: Amount | None = None,
    lr: Amount | Float[Tensor, ""] | None = None,
    gate_lr: Amount | Float[Tensor, ""] | None = None,
) -> list[dict[str, Any]]:
    """Make optimizer groups in which gates have no weight decay.

    Weight decay would pull logits towards zero, and so *open* units.

    Args:
        model: The model, gates included.
        weight_decay: For everything but gates; by default that of the optimizer.
        lr: Learning rate; by default that of the optimizer.
        gate_lr: Learning rate of the gates; by default `lr`.

    Examples:
        >>> from diffprune import Gate
        >>> model = nn.Sequential(nn.Linear(4, 3), Gate(3))
        >>> groups = parameter_groups(model, weight_decay=0.1, gate_lr=0.01)
        >>> torch.optim.AdamW(groups).param_groups[1]["weight_decay"]
        0.0
    """
    for name, rate in {"lr": lr, "gate_lr": gate_lr}.items():
        if isinstance(rate, Tensor):
            number(name, rate.item() if rate.numel() == 1 else rate)
    of_gates = dict.fromkeys(
        p for m in model.modules() if isinstance(m, GateLike) for p in m.parameters()
    )
    others = [p for p in model.parameters() if p not in of_gates and p.requires_grad]
    gates = [p for p in of_gates if p.requires_grad]
    return [
        _group(others, weight_decay, lr),
        _group(gates, 0.0, lr if gate_lr is None else gate_lr),
    ]


@overload
def named_gates(model: nn.Module) -> dict[str, BaseGate]: ...
@overload
def named_gates(model: nn.Module, kind: type[GateT]) -> dict[str, GateT]: ...
@door
def named_gates(
    model: nn.Module, kind: type[BaseGate] = BaseGate
) -> Mapping[str, BaseGate]:
    """All gates of a kind, by module path; a gate used twice has its first name.

    A gate that another gate is made of is no gate of the model.

    Args:
        model: The model.
        kind: The class of gates to look for; all by default.
    """
    gates = {name: m for name, m in model.named_modules() if isinstance(m, BaseGate)}
    parts = {part for gate in gates.values() for part in [*gate.modules()][1:]}
    found = ((name, m) for name, m in gates.items() if m not in parts)
    return {name: m for name, m in found if isinstance(m, kind)}


def gate_paths(model: nn.Module) -> dict[str, BaseGate]:
    """All gates that stand in a model, under every name that each of them has."""
    gates = set(named_gates(model).values())
    every = model.named_modules(remove_duplicate=False)
    return {name: m for name, m in every if isinstance(m, BaseGate) and m in gates}


def first_names(model: nn.Module) -> dict[str, str]:
    """For every name of a gate that stands in a model, what `named_gates` calls it."""
    names = {gate: name for name, gate in named_gates(model).items()}
    return {path: names[gate] for path, gate in gate_paths(model).items()}


def _group(
    parameters: list[nn.Parameter],
    weight_decay: float | None,
    lr: float | Float[Tensor, ""] | None,
) -> dict[str, Any]:
    """A group with what was given; the optimizer's own defaults fill in the rest."""
    given = {"weight_decay": weight_decay, "lr": lr}
    options = {name: value for name, value in given.items() if value is not None}
    return {"params": parameters, **options}


def _by_name(strength: Strength, names: tuple[str, ...]) -> Mapping[str, float]:
    if not names:
        raise ArgumentError("the model has no gates, so there is nothing to penalise.")
    if isinstance(strength, Mapping):
        return _checked(strength, names)
    if isinstance(strength, Sequence):
        if len(strength) != len(names):
            raise ArgumentError(
                f"got {len(strength)} strengths for {len(names)} gates: "
                f"{', '.join(names)}."
            )
        return dict(zip(names, map(float, strength), strict=True))
    return dict.fromkeys(names, float(strength))


def _checked(
    strength: Mapping[str, float], names: tuple[str, ...]
) -> Mapping[str, float]:
    if unknown := sorted(set(strength) - set(names)):
        raise UnknownNameError(
            f"strength: no gate is called {', '.join(map(repr, unknown))}; they are "
            f"{', '.join(map(repr, names))}."
        )
    if missing := sorted(set(names) - set(strength)):
        raise UnknownNameError(
            f"no strength for {', '.join(map(repr, missing))}.\n"
            "Give each gate one; 0.0 leaves it alone."
        )
    return strength

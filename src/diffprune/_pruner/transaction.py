"""One removal in a model that is being trained: all of it, or nothing.

Knows models, gates and optimizers as holders of tensors, not what they are for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._graph import Groups
from diffprune._graph.axes import count
from diffprune._pruner.gate_sites import NAME
from diffprune._surgery.apply import named_tensors
from diffprune._surgery.optimizer_state import Move, check_can_follow
from diffprune._surgery.plan import Plan
from diffprune.errors import ArgumentError
from diffprune.gates.penalty import named_gates


@dataclass(frozen=True)
class Snapshot:
    """Every tensor of some models as it was, by reference."""

    states: Sequence["_State"]

    @classmethod
    def of(cls, models: Sequence[nn.Module]) -> "Snapshot":
        """Note what a cut may change; nothing is copied."""
        modules = dict.fromkeys(m for model in models for m in model.modules())
        return cls([_State.of(module) for module in modules])

    def restore_(self) -> None:
        """Put everything back."""
        for state in self.states:
            state.restore_()


@dataclass(frozen=True)
class _State:
    module: nn.Module
    parameters: Mapping[str, nn.Parameter | None]
    buffers: Mapping[str, Tensor | None]
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, module: nn.Module) -> "_State":
        numbers = {k: v for k, v in vars(module).items() if type(v) is int}
        parameters, buffers = module._parameters, module._buffers  # noqa: SLF001 - by reference
        return cls(module, dict(parameters), dict(buffers), numbers)

    def restore_(self) -> None:
        vars(self.module).update(self.numbers)
        self.module._buffers.update(self.buffers)  # noqa: SLF001 - None is allowed here
        for name, parameter in self.parameters.items():
            # Through the module: recurrent layers keep a second list of weights.
            setattr(self.module, name, parameter)


def check_unchanged(model: nn.Module, groups: Groups) -> None:
    """Refuse a model whose tensors are not those the groups were found in."""
    gates = tuple(f"{name}." for name in named_gates(model))
    found = {
        name: tuple(tensor.shape)
        for name, tensor in named_tensors(model).items()
        if not name.startswith(gates) and NAME not in name
    }
    expected = {
        name: tuple(count(axis, {}) for axis in axes)
        for name, axes in groups.tensors.items()
        if not name.startswith(gates)
    }
    for name in dict.fromkeys((*expected, *found)):
        if found.get(name) != expected.get(name):
            raise ArgumentError(
                f"`{name}` had shape {expected.get(name, 'none')} when the pruner last "
                f"saw it and has {found.get(name, 'none')} now.\n"
                "Change the model before making the pruner, not after."
            )


def moves(before: Mapping[str, Tensor], model: nn.Module, plan: Plan) -> list[Move]:
    """What took the place of every parameter that a plan cut."""
    after = named_tensors(model)
    found: dict[Tensor, Move] = {}
    for name, dims in plan.tensors.items():
        old, new = before[name], after[name]
        if isinstance(old, nn.Parameter) and isinstance(new, nn.Parameter):
            found[old] = Move(old, new, dims)
    return list(found.values())


def check_optimizers(
    optimizers: Sequence[Optimizer],
    tensors: Mapping[str, Tensor],
    names: Sequence[str],
    logits: Mapping[str, nn.Parameter],
) -> None:
    """Refuse optimizers that could not follow, while nothing has changed.

    Args:
        optimizers: All that hold parameters of the model.
        tensors: Everything in the model, by name.
        names: What is about to be cut of it.
        logits: What the gates hold, by gate.
    """
    cut = {name: tensors[name] for name in names}
    parameters = {n: p for n, p in cut.items() if isinstance(p, nn.Parameter)}
    gates = {f"{name} (its gate)": p for name, p in logits.items()}
    check_can_follow(optimizers, {**parameters, **gates})


def check_same(model: nn.Module, copied: nn.Module) -> None:
    """Refuse what is not a copy of a model.

    Raises:
        ArgumentError: If a tensor is missing, or has another shape.
    """
    expected = {name: t.shape for name, t in named_tensors(model).items()}
    found = {name: t.shape for name, t in named_tensors(copied).items()}
    for name in dict.fromkeys((*expected, *found)):
        if expected.get(name) != found.get(name):
            raise ArgumentError(
                f"this is no copy of the model as it is now: `{name}` differs.\n"
                "Copy it after making the pruner: `copy.deepcopy(pruner.model)`."
            )

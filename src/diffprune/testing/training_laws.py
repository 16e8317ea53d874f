"""The law of training: k steps, a removal, k steps are 2k steps for what stays."""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from diffprune._core.arguments import check
from diffprune._core.copying import copied
from diffprune._core.door import door
from diffprune._core.leaves import leaves_of
from diffprune._core.modules import named_tensors
from diffprune._core.types import Amount, Bool, Count, Float, Seed
from diffprune._graph import ExampleInputs
from diffprune._pruner import Pruner
from diffprune._surgery.apply import select
from diffprune.gates import Gate, expected_l0, named_gates
from diffprune.testing.outcomes import assert_close, call, tolerance

Loss = Callable[[Any], Float[Tensor, ""]]
MakeOptimizer = Callable[[Any], Optimizer]


def mean_square(outputs: Any) -> Float[Tensor, ""]:  # noqa: ANN401 - as the model returns
    """The mean square of all numbers in nested outputs: a loss for any model."""
    tensors = [x for x in leaves_of(Tensor, outputs) if x.is_floating_point()]
    return torch.stack([x.square().mean() for x in tensors]).sum()


@door
def check_training_commutes(
    model: nn.Module,
    example_inputs: ExampleInputs,
    optimizer: MakeOptimizer = Adam,
    *,
    loss: Loss = mean_square,
    steps: Count = 3,
    training: bool = False,
    seed: Seed = 0,
    atol: Amount | None = None,
    **options: Any,  # noqa: ANN401 - those of Pruner
) -> Pruner[nn.Module]:
    """Train, remove closed units from one of two copies, train both on, compare.

    Every parameter and buffer that stays must have the values it has in the copy from
    which nothing was removed, the optimizer's momentum included: that is what the steps
    after the removal are for.

    Args:
        model: Left as it is. In double precision the check is sharpest.
        example_inputs: As for `find_groups`; also what is trained on.
        optimizer: Makes the optimizer of parameter groups. It must treat elements one
            by one, as all usual ones do; Muon and Adafactor do not.
        loss: Of what the model returns.
        steps: Before the removal, and again after it.
        training: Whether the model is in train mode; without dropout, then.
        seed: Of the units that are closed by hand.
        atol: How far values may differ, or which part of the largest. By default it
            follows the precision of the model: 1e-9 in double, 1e-4 in single.
        options: Passed to `Pruner`.

    Returns:
        The pruner of the copy that was cut.

    Raises:
        ArgumentError: If there is nothing in the model that can be removed.
        AssertionError: If nothing was removed, or survivors differ.

    Examples:
        >>> model = nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 2)).double()
        >>> pruner = check_training_commutes(model, torch.rand(4, 3).double())
        >>> pruner.model[0].out_features < 9
        True
    """
    trial = copied(model).train(training)
    pruner = manual_pruner(trial, example_inputs, **options)
    optimizing = optimizer(accepted(pruner.parameter_groups(lr=1e-3), optimizer))
    check("what optimizer returns", Optimizer, optimizing)
    close_some_(named_gates(pruner.model, Gate).values(), seed=seed)
    train_(pruner.model, example_inputs, optimizing, loss, steps)
    was_open = {n: g.is_open() for n, g in named_gates(pruner.model).items()}
    whole = copied(pruner.model)
    pairs = zip(pruner.model.parameters(), whole.parameters(), strict=True)
    whole_optimizer = copy.deepcopy(optimizing, {id(p): own for p, own in pairs})
    if pruner.remove_closed_(optimizing) is None:
        raise AssertionError("units were closed, and none was removed")
    train_(pruner.model, example_inputs, optimizing, loss, steps)
    train_(whole, example_inputs, whole_optimizer, loss, steps)
    atol = 10 * tolerance(model) if atol is None else atol  # steps add up
    _assert_survivors_agree(pruner, whole, was_open, atol)
    return pruner


def manual_pruner(
    model: nn.Module,
    example_inputs: ExampleInputs,
    **options: Any,  # noqa: ANN401 - those of Pruner
) -> Pruner[nn.Module]:
    """A pruner of the model that removes only when it is told to."""
    usual: dict[str, Any] = {"remove_every": lambda _: False, "strength": 1e-3}
    return Pruner(model, example_inputs, **(usual | options))


def accepted(
    groups: list[dict[str, Any]], optimizer: MakeOptimizer
) -> list[dict[str, Any]]:
    """Parameter groups without options that the optimizer does not know."""
    if "weight_decay" in inspect.signature(optimizer).parameters:
        return groups
    return [{k: v for k, v in g.items() if k != "weight_decay"} for g in groups]


def close_some_(gates: Iterable[Gate], *, seed: int = 0, share: float = 0.4) -> None:
    """Close random units of every gate by pulling down their logits."""
    draw = torch.Generator().manual_seed(seed)
    for gate in gates:
        closed = torch.rand(gate.size, generator=draw) < share
        gate.logits.data[closed.to(gate.logits.device)] -= 5.0


def train_(
    model: nn.Module,
    inputs: ExampleInputs,
    optimizer: Optimizer,
    loss: Loss = mean_square,
    steps: int = 3,
) -> None:
    """Some steps on the loss and the penalty of open gates."""
    for _ in range(steps):
        optimizer.zero_grad()
        found = loss(call(model, inputs))
        check("what loss returns", Tensor, found)
        (found.sum() + expected_l0(model, 1e-3)).backward()
        optimizer.step()


def _assert_survivors_agree(
    pruner: Pruner[nn.Module],
    whole: nn.Module,
    was_open: Mapping[str, Bool[Tensor, " units"]],
    atol: float,
) -> None:
    expected = _survivors(named_tensors(whole), pruner, was_open)
    actual = named_tensors(pruner.model)
    if list(actual) != list(expected):
        raise AssertionError(f"other names: {sorted(set(actual) ^ set(expected))}")
    for name, tensor in actual.items():
        # Neither the index of a gate, nor the mass of removed units that it keeps.
        if tensor.is_floating_point() and not name.endswith("background"):
            what = f"`{name}` after a removal in the middle of training"
            assert_close(tensor, expected[name], what=what, atol=atol)


def _survivors(
    tensors: Mapping[str, Tensor],
    pruner: Pruner[nn.Module],
    was_open: Mapping[str, Bool[Tensor, " units"]],
) -> dict[str, Tensor]:
    """What the plan keeps of the tensors of a model that was never cut."""
    kept = {name: dict(dims) for name, dims in pruner.plan.tensors.items()}
    for name, units in was_open.items():
        places = {0: tuple(units.nonzero().flatten().tolist())}
        kept |= {f"{name}.logits": places, f"{name}.origin": places}
    # By tensor: a layer may have several names, and so has a gate that lives in it.
    dims = {tensors[name]: places for name, places in kept.items() if name in tensors}
    return {name: select(t, dims.get(t, {})) for name, t in tensors.items()}

"""Networks whose units hard concrete gates choose, to the same cost and compute.

L0 regularisation as published, with two changes that the comparison asks for: an open
unit is priced by the multiply-adds it costs, and the price rises until a given part of
them is left, then starts from zero, as in constrained L0. Where other methods go by a
score, this one goes by learned logits.
"""

import copy
import time
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

import diffprune as dp
from benchmarks.choice.ours import Cut
from benchmarks.choice.tasks import BATCH, Task, batches
from benchmarks.choice.training import schedule
from diffprune._costs.counts import macs as counted_macs
from diffprune._costs.network import Network
from diffprune._costs.polynomial import Polynomial
from paper.methods.hard_concrete import HardConcrete

GATE_RATE: Final = 0.1
"""Of Adam for the logits, which have a few hundred steps in place of thousands."""
FALLS: Final = 0.5
"""The part of the steps in which the limit falls from everything to the target."""
_CLOSED_AT_FIRST: Final = 0.05
_LEAST: Final = 0.05
_FAR_BELOW: Final = -100.0


def cut(
    model: nn.Module, task: Task, seed: int, target: float, *, steps: int, rate: float
) -> Cut:
    """Train with hard concrete gates, then remove the units of the lowest logits.

    The steps are charged; they pass through the whole network, because a closed unit
    may open again.

    Raises:
        RuntimeError: If too few units have gates to get there.
    """
    begin = time.process_time()
    torch.manual_seed(seed)
    whole = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    images = task.data().train.images[:2]
    groups = dp.find_groups(whole, images)
    cost = counted_macs(Network(whole, images, groups, [*groups]))
    pruner = dp.Pruner(
        whole,
        images,
        strength=1.0,
        gate=lambda group: HardConcrete(group.size, dropout=_CLOSED_AT_FIRST),
    )
    gates = {group.name: _gate(pruner, group.name) for group in groups}
    _train_(
        pruner, gates, cost, task, 200 + seed, target=target, steps=steps, rate=rate
    )
    logits = {name: gate.log_alpha.detach() for name, gate in gates.items()}
    for name, keep in chosen(logits, cost, target).items():
        logits[name].clamp_(min=0.0)[~keep] = _FAR_BELOW
    small = pruner.finalize()
    return Cut(small, steps * BATCH, time.process_time() - begin)


def _gate(pruner: dp.Pruner[Any], name: str) -> HardConcrete:
    gate = pruner.gates[name]
    assert isinstance(gate, HardConcrete)  # noqa: S101 - the pruner was told so
    return gate


def _train_(
    pruner: dp.Pruner[Any],
    gates: Mapping[str, HardConcrete],
    cost: Polynomial,
    task: Task,
    seed: int,
    *,
    target: float,
    steps: int,
    rate: float,
) -> None:
    """Minimise the loss subject to the expected multiply-adds, by a rising price."""
    model: nn.Module = pruner.model
    weights, logits = pruner.parameter_groups()
    optimizer = task.optimizer(weights["params"], rate)
    learner, stream = Adam(logits["params"], lr=GATE_RATE), batches(task, seed)
    sizes = torch.tensor([gate.size for gate in gates.values()])
    everything, price = float(cost(sizes)), 0.0
    model.train()
    for step in range(steps):
        inputs, labels = next(stream)
        for group in optimizer.param_groups:
            group["lr"] = rate * schedule(step, steps)
        limit = 1 - (1 - target) * min(1.0, step / (FALLS * steps))
        widths = torch.stack([gate.penalty() for gate in gates.values()])
        excess = cost(widths) / everything - limit
        optimizer.zero_grad()
        learner.zero_grad()
        (cross_entropy(model(inputs), labels) + price * excess).backward()
        optimizer.step()
        learner.step()
        above = float(excess.detach())
        price = price + above if above > 0 else 0.0
    model.eval()


def chosen(
    logits: Mapping[str, Tensor], cost: Polynomial, target: float
) -> dict[str, Tensor]:
    """The units of the highest logits that a part of the cost allows.

    Args:
        logits: Of the units of each group.
        cost: As a function of the widths of the groups, in the same order.
        target: The part of the whole cost.

    Returns:
        By name of the group, True for every unit that stays.

    Raises:
        RuntimeError: If even the fewest units cost more.

    Examples:
        >>> area = Polynomial({(0, 1): 1}, 2)
        >>> logits = {"a": torch.tensor([3.0, 1.0]), "b": torch.tensor([2.0, 0.0])}
        >>> {name: keep.tolist() for name, keep in chosen(logits, area, 0.5).items()}
        {'a': [True, True], 'b': [True, False]}
    """
    ranks = torch.cat([*logits.values()]).sort().values
    most = target * float(cost(torch.tensor([len(one) for one in logits.values()])))

    def kept(count: int) -> dict[str, Tensor]:
        """Without the lowest ones, but for a few of each group."""
        found = dict[str, Tensor]()
        for name, one in logits.items():
            least = max(1, round(_LEAST * len(one)))
            found[name] = one >= min(ranks[count], one.sort().values[-least])
        return found

    def fits(count: int) -> bool:
        widths = [int(keep.sum()) for keep in kept(count).values()]
        return float(cost(torch.tensor(widths))) <= most

    last = len(ranks) - 1
    count = bisect_left(range(last), x=True, key=fits)
    if not fits(count):
        raise RuntimeError(f"hard concrete does not get to {target} of the cost")
    return kept(count)

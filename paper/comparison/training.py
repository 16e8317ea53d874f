"""How methods train: `Live` shrinks as it goes, `AtTheEnd` is cut once, when all ends.

Both are what the training loop of the workbench takes for a pruner, so records,
checkpoints and interruptions are those of every other run.
"""

from collections.abc import Mapping
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import diffprune as dp
from diffprune._core.types import Float
from diffprune._pruner import RemovalRecord
from diffprune.gates import GateLike, expected_l0, named_gates
from diffprune.lab.training.no_pruning import NoPruning
from paper.comparison.method import MethodRun
from paper.methods.gradual_magnitude import MagnitudeGate
from paper.methods.variational_layers import plain_
from paper.models.lenet5 import DENSE, PLACES, LeNet5, Widths

_NEVER: Final = 10**9
_VARIANCES: Final = ("log_var", "log_sigma2")
"""How the names of posterior variances end: they decide what goes, as gates do."""


@final
class Live(dp.Pruner[nn.Module]):
    """Gates that close for good, or nearly: their units leave while training goes on.

    Args:
        run: What is trained, and for how long.
        model: LeNet-5 with its gates.
        examples: What removals are checked on.
    """

    def __init__(self, run: MethodRun, model: nn.Module, examples: Tensor) -> None:
        when = {} if run.method.shrinks else {"remove_every": _NEVER}
        options: dict[str, Any] = {**when, **run.recipe.pruner}
        super().__init__(model, examples, strength=run.recipe.strength, **options)
        self._run = run

    def penalty(self) -> Float[Tensor, ""]:
        """That of the gates, and what else the method penalises."""
        return self._run.penalty(self.model, super().penalty(), self.steps)

    def step(self, *optimizers: Optimizer) -> RemovalRecord | None:
        """Call the method's own hook, then remove what may go."""
        self._run.after_step_(self.model, optimizers, self.steps)
        return super().step(*optimizers)


@final
class AtTheEnd(NoPruning):
    """Noisy weights, which take part until the end; then what is noise goes at once.

    Args:
        run: What is trained, and for how long.
        model: LeNet-5 with its gates and layers.
        examples: What removals are checked on.
    """

    def __init__(self, run: MethodRun, model: nn.Module, examples: Tensor) -> None:
        self._examples = examples
        super().__init__(model, examples)
        self._run = run
        self.gates: dict[str, GateLike] = {**named_gates(model)}

    def parameter_groups(
        self,
        *,
        lr: float | None = None,
        gate_lr: float | None = None,
        weight_decay: float | None = None,
    ) -> list[dict[str, Any]]:
        """Means of weights, and what decides about them: gates and variances."""
        named = dict(self.model.named_parameters())
        fast = {name for name in named if _decides(name, self.gates)}
        slow, gate_lr = named.keys() - fast, lr if gate_lr is None else gate_lr
        return [
            _group([named[n] for n in named if n in slow], lr, weight_decay),
            _group([named[n] for n in named if n in fast], gate_lr, 0.0),
        ]

    def penalty(self) -> Float[Tensor, ""]:
        """What the priors of gates and weights cost."""
        run = self._run
        gates = expected_l0(self.model, run.strength) if self.gates else torch.zeros(())
        return run.penalty(self.model, gates, self.steps)

    def step(self, *optimizers: Optimizer) -> None:
        """Call the method's own hook, and count."""
        self._run.after_step_(self.model, optimizers, self.steps)
        super().step(*optimizers)

    def shape(self) -> RemovalRecord:
        """The whole network, whatever its posterior holds beside the means."""
        macs = DENSE.macs * len(self._examples)
        return RemovalRecord(self.steps, {}, DENSE.parameters, macs)

    def finalize(self) -> nn.Module:
        """Use the means alone, and cut what is zero or closed."""
        self.model = finished(self.model, self._examples)
        self.gates = {}
        left = units(self.model)
        macs = left.macs * len(self._examples)
        named = dict[str, int](zip(PLACES, left, strict=True))
        self.history.append(RemovalRecord(self.steps, named, left.parameters, macs))
        return self.model


def finished(model: nn.Module, examples: Tensor) -> nn.Module:
    """The small plain network that noisy layers come down to in use.

    Units that only carry a constant are folded into what reads them. Flat features that
    nothing reads any more go by a gate, because they can go one by one.

    Args:
        model: LeNet-5 with noisy layers, and with gates or without.
        examples: What removals are checked on.
    """
    plain = plain_(model, LeNet5()).eval()
    gates = named_gates(model)
    for name, gate in gates.items():
        setattr(plain, name, gate.eval())
    if not gates:
        plain = dp.compact(plain, examples)
        used = plain.get_parameter("fc1.weight").detach().any(dim=0)
        plain.gate_flat = MagnitudeGate(len(used), share=0.0).end_with_(used)
    return dp.Pruner(plain, examples, strength=0.0).finalize()


def units(model: nn.Module) -> Widths:
    """What is left of a plain LeNet-5, behind the four places of gates."""
    of = {name: model.get_parameter(f"{name}.weight").shape for name in _LAYERS}
    return Widths(of["conv1"][0], of["conv2"][0], of["fc1"][1], of["fc1"][0])


_LAYERS: Final = ("conv1", "conv2", "fc1")


def _decides(name: str, gates: Mapping[str, GateLike]) -> bool:
    return name.endswith(_VARIANCES) or name.rpartition(".")[0] in gates


def _group(
    parameters: list[nn.Parameter], lr: float | None, weight_decay: float | None
) -> dict[str, Any]:
    given = {"lr": lr, "weight_decay": weight_decay}
    known = {name: value for name, value in given.items() if value is not None}
    return {"params": parameters, **known}

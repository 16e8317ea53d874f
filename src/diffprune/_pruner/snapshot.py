"""What a removal may change in models and optimizers, noted so it can be put back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._graph import widen_


@dataclass(frozen=True)
class Snapshot:
    """Tensors and attributes of models, and what optimizers hold; by reference."""

    modules: Sequence["_ModuleState"]
    optimizers: Sequence["_OptimizerState"]

    @classmethod
    def of(
        cls, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]
    ) -> "Snapshot":
        """Note what a removal may change; nothing is copied."""
        modules = dict.fromkeys(m for model in models for m in model.modules())
        return cls(
            [_ModuleState.of(module) for module in modules],
            [_OptimizerState.of(optimizer) for optimizer in optimizers],
        )

    def restore_(self) -> None:
        """Put everything back."""
        for state in (*self.modules, *self.optimizers):
            state.restore_()


@dataclass(frozen=True)
class _ModuleState:
    module: nn.Module
    kind: type[nn.Module]
    parameters: Mapping[str, nn.Parameter | None]
    buffers: Mapping[str, Tensor | None]
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, module: nn.Module) -> "_ModuleState":
        numbers = {k: v for k, v in vars(module).items() if type(v) is int}
        parameters, buffers = module._parameters, module._buffers  # noqa: SLF001 - by reference
        kept = dict(parameters), dict(buffers)
        return cls(module, type(module), *kept, numbers)

    def restore_(self) -> None:
        widen_(self.module, self.kind)
        vars(self.module).update(self.numbers)
        self.module._buffers.update(self.buffers)  # noqa: SLF001 - None is allowed here
        for name, parameter in self.parameters.items():
            # Through the module: recurrent layers keep a second list of weights.
            setattr(self.module, name, parameter)


@dataclass(frozen=True)
class _OptimizerState:
    optimizer: Optimizer
    parameters: Sequence[Sequence[Tensor]]
    state: Mapping[Tensor, Mapping[str, Any]]

    @classmethod
    def of(cls, optimizer: Optimizer) -> "_OptimizerState":
        parameters = [[*group["params"]] for group in optimizer.param_groups]
        return cls(optimizer, parameters, dict(optimizer.state))

    def restore_(self) -> None:
        groups = zip(self.optimizer.param_groups, self.parameters, strict=True)
        for group, parameters in groups:
            group["params"] = [*parameters]
        self.optimizer.state.clear()
        self.optimizer.state.update(self.state)

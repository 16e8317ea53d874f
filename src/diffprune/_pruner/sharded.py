"""A model that `fully_shard` has divided among processes: whole while units leave.

Nothing of a sharded parameter can be cut without the others knowing. So for a removal
all processes gather the weights, cut them alike, and divide them again by the user's
own function. What optimizers remember is gathered one tensor at a time.

Gates are small. They are not divided: every process has all of them, and the gradients
are averaged when a backward pass ends.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, TypeAlias, final

import torch
from torch import Tensor, distributed, nn
from torch.distributed import _composable_state, fsdp
from torch.distributed._composable.contract import REGISTRY_KEY, STATE_KEY
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from diffprune._pruner.processes import Processes
from diffprune._surgery.optimizer_state import all_optimizers
from diffprune.errors import ArgumentError
from diffprune.gates import GateLike

Shard: TypeAlias = Callable[[Any], object]
"""Divides a model, by calls of `fully_shard`."""

_KEYS: Final = (STATE_KEY, REGISTRY_KEY)
_MARKS: Final = ("_is_fsdp_managed_module", "_fsdp_use_orig_params")


@final
class Sharding:
    """How a model is divided among processes, and made whole again.

    Args:
        shard: Divides the model.
        processes: Those that train it; all of the default group.
    """

    def __init__(self, shard: Shard, processes: Processes) -> None:
        self._shard, self._processes = shard, processes
        self._handles = list[RemovableHandle]()
        self._gates = list[nn.Parameter]()
        self._is_waiting = False

    @classmethod
    def of_(
        cls,
        model: nn.Module,
        gates: Iterable[GateLike],
        shard: Shard,
        processes: Processes,
    ) -> "Sharding":
        """Divide a model among all processes; it has the numbers of the first one.

        Raises:
            ArgumentError: If there are no processes, or the function divides nothing.
        """
        if not distributed.is_initialized():
            raise ArgumentError(
                "a model is divided among processes, and there are none.\nStart the "
                "script with `torchrun`, and call `init_process_group` first."
            )
        found, group = cls(shard, processes), distributed.group.WORLD
        device = next(model.parameters()).device
        backend: Any = group._get_backend(device)  # noqa: SLF001  # pyright: ignore[reportOptionalMemberAccess] - initialised
        processes.join_(group, backend.options._timeout)  # noqa: SLF001  # pyright: ignore[reportArgumentType] - as above
        processes.copy_from_first_(
            [t.data for t in chain(model.parameters(), model.buffers())]
        )
        found.shard_(model, gates)
        return found

    def shard_(self, model: nn.Module, gates: Iterable[GateLike]) -> None:
        """Divide the model, but for its gates.

        Raises:
            ArgumentError: If the function does not divide it among all processes.
        """
        gates, self._processes.is_sharded = list(gates), True
        with _hidden(gates):
            self._shard(model)
        divided = [p for p in model.parameters() if isinstance(p, DTensor)]
        world = distributed.get_world_size()
        if not divided or any(p.device_mesh.shape != (world,) for p in divided):
            unshard_(model)
            self._processes.is_sharded = False
            raise ArgumentError(
                "the function did not divide the model among all processes, along one "
                "dimension.\nType `pruner.shard_(fully_shard)`, or a function that "
                "calls `fully_shard` for layers and then for the model."
            )
        self._gates = [p for gate in gates for _, p in gate.named_parameters()]
        for handle in self._handles:
            handle.remove()
        self._handles = [
            p.register_post_accumulate_grad_hook(self._wait_for_all)
            for p in self._gates
            if p.requires_grad
        ]

    @contextmanager
    def whole(
        self,
        model: nn.Module,
        gates: Callable[[], Iterable[GateLike]],
        optimizers: Sequence[Optimizer],
    ) -> Generator[None]:
        """Let every process have the whole model within a block.

        Args:
            model: The model, with the same layers before and after.
            gates: Its gates after the block.
            optimizers: All that train it; their state stays divided.
        """
        _point_to_(optimizers, unshard_(model))
        try:
            yield
        finally:
            before = _named(model)
            self.shard_(model, gates())
            after = _named(model)
            _point_to_(optimizers, {before[n]: after[n] for n in before})

    def end_(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        """Make the model whole for good, and what optimizers remember, too."""
        _point_to_(optimizers, unshard_(model))
        for optimizer in all_optimizers(optimizers):
            for state in optimizer.state.values():
                state.update({key: _gathered(value) for key, value in state.items()})
        for handle in self._handles:
            handle.remove()

    def _wait_for_all(self, _: Tensor) -> None:
        """Hook: a gate has its gradient; others follow in this backward pass."""
        if not self._is_waiting:
            self._is_waiting = True
            engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001 - as FSDP does
            engine.queue_callback(self._average_)

    @torch.no_grad()
    def _average_(self) -> None:
        """The backward pass has ended: average the gradients of all gates."""
        self._is_waiting = False
        found = [p.grad for p in self._gates if p.grad is not None]
        joined = torch.cat([gradient.flatten() for gradient in found])
        self._processes.sum_(joined)
        parts = joined.div_(self._processes.count).split([g.numel() for g in found])
        for gradient, part in zip(found, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def unshard_(model: nn.Module) -> dict[Tensor, nn.Parameter]:
    """Undo `fully_shard`: gather the parameters, and take its hooks out of the model.

    Returns:
        The whole parameter for every divided one.
    """
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.reshard()
    replaced = dict[Tensor, nn.Parameter]()
    for module in model.modules():
        for name, parameter in [*module._parameters.items()]:  # noqa: SLF001 - replaced in place
            if isinstance(parameter, DTensor):
                if parameter not in replaced:
                    whole = parameter.full_tensor().detach()
                    wanted = parameter.requires_grad
                    replaced[parameter] = nn.Parameter(whole, requires_grad=wanted)
                module._parameters[name] = replaced[parameter]  # noqa: SLF001 - as above
        _forget_(module)
    return replaced


def _forget_(module: nn.Module) -> None:
    """Take out what `fully_shard` has put into a module."""
    for mark in _MARKS:
        vars(module).pop(mark, None)
    if not isinstance(module, fsdp.FSDPModule):
        return
    state: Any = module._get_fsdp_state()  # noqa: SLF001 - nothing public undoes it
    for handle in _handles(state):
        handle.remove()
    for key in _KEYS:
        vars(module).pop(key, None)
    _composable_state._module_state_mapping.pop(module, None)  # noqa: SLF001 - as above
    module.__class__ = type(module).__mro__[module._orig_cls_mro_index]  # noqa: SLF001 - as above


def _handles(state: Any) -> Iterable[RemovableHandle]:  # noqa: ANN401 - torch does not type it
    """All hooks that FSDP has put on the layers that it gathers together."""
    yield state._pre_forward_hook_handle  # noqa: SLF001 - nothing public undoes it
    yield state._post_forward_hook_handle  # noqa: SLF001 - as above
    for group in state._fsdp_param_groups:  # noqa: SLF001 - as above
        yield from group._module_to_pre_save_state_dict_hook_handle.values()  # noqa: SLF001 - as above
        yield from group._module_to_pre_load_state_dict_hook_handle.values()  # noqa: SLF001 - as above
        for parameter in group.fsdp_params:
            yield parameter._post_load_hook_handle  # noqa: SLF001 - as above


def _point_to_(
    optimizers: Sequence[Optimizer], replaced: Mapping[Tensor, Tensor]
) -> None:
    """Let optimizers hold others in the place of some parameters, with their state."""
    for optimizer in all_optimizers(optimizers):
        for group in optimizer.param_groups:
            group["params"] = [replaced.get(p, p) for p in group["params"]]
        for old, new in replaced.items():
            if old is not new and old in optimizer.state:
                optimizer.state[new] = optimizer.state.pop(old)


@contextmanager
def _hidden(gates: Iterable[Any]) -> Generator[None]:
    """Keep the parameters of gates out of sight."""
    modules = [module for gate in gates for module in gate.modules()]
    held = [(module, dict(module._parameters)) for module in modules]  # noqa: SLF001 - put back
    for module in modules:
        module._parameters.clear()  # noqa: SLF001 - as above
    try:
        yield
    finally:
        for module, parameters in held:
            module._parameters.update(parameters)  # noqa: SLF001 - as above


def _named(model: nn.Module) -> dict[str, nn.Parameter]:
    return dict(model.named_parameters())


def _gathered(value: object) -> object:
    return value.full_tensor() if isinstance(value, DTensor) else value

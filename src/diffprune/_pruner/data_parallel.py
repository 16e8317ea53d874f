"""`DistributedDataParallel` around a model that shrinks: noticed, and kept up to date.

The wrapper averages the gradients of those parameters that it has seen, and a removal
replaces parameters. With `find_unused_parameters=True` it would not even complain. So a
gated model notices who calls it, and from then on the wrapper looks at its parameters
before each call, and registers them anew if they are others.
"""

import sys
from typing import Any, Final, final

import torch
from torch import distributed, nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from diffprune._pruner.processes import Processes
from diffprune.errors import ArgumentError

_KNOWN: Final = "_diffprune_keeps_it_up_to_date"
"""Attribute of wrappers that look at their parameters before each call."""


@final
class Notice:
    """A forward hook of a gated model that notices the wrapper around it.

    Args:
        processes: Join those of the wrapper.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def __call__(self, model: nn.Module, *_: object) -> None:
        """Hook: a forward pass begins.

        Raises:
            ArgumentError: If gradients of gates or parameters would not be averaged.
        """
        if torch.compiler.is_compiling():
            return
        if isinstance(model, _fsdp_modules()) and not self._processes.is_sharded:
            raise ArgumentError(
                "`fully_shard` has divided this model, gates included, without its "
                "pruner knowing.\nLet the pruner do it, before the optimizer is made: "
                "`pruner.shard_(fully_shard)`."
            )
        wrapper = DistributedDataParallel._get_active_ddp_module()  # noqa: SLF001 - torch.compile asks so, too
        if wrapper is not None:
            keep_up_to_date_(wrapper, self._processes)

    def __reduce__(self) -> tuple[type["Notice"], tuple[Processes]]:
        return Notice, (self._processes,)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Notice":
        key = id(self._processes)
        return Notice(memo.setdefault(key, self._processes.__deepcopy__(memo)))


def _fsdp_modules() -> tuple[type, ...]:
    """The class of divided models, if anybody has imported it."""
    found = sys.modules.get("torch.distributed.fsdp")
    return () if found is None else (found.FSDPModule,)


def notice_wrappers_(model: nn.Module, processes: Processes) -> RemovableHandle:
    """Let a model notice a wrapper around it, or around a model that it is part of."""
    return model.register_forward_pre_hook(Notice(processes), prepend=True)


def ignore_wrappers_(model: nn.Module) -> None:
    """Undo `notice_wrappers_`, in the model or in a copy of it."""
    hooks = model._forward_pre_hooks  # noqa: SLF001 - copies have no handles
    for key in [key for key, hook in hooks.items() if isinstance(hook, Notice)]:
        hooks.pop(key)


def keep_up_to_date_(wrapper: DistributedDataParallel, processes: Processes) -> None:
    """Let a wrapper register its parameters anew whenever they are others.

    Args:
        wrapper: Around a model that has a pruner.
        processes: Join those of the wrapper.

    Raises:
        ArgumentError: If it has other parameters already, or could not follow.
    """
    if _KNOWN not in vars(wrapper):
        if _is_stale(wrapper):
            raise ArgumentError(
                "this DistributedDataParallel was made before the pruner, or before "
                "units were removed or a checkpoint was loaded: it would not average "
                "the gradients of all parameters, and the processes would drift apart."
                "\nMake it after that: `DistributedDataParallel(pruner.model)`."
            )
        _check_can_follow(wrapper)
        wrapper.register_forward_pre_hook(_renew_if_stale_)
        setattr(wrapper, _KNOWN, True)
    group: Any = wrapper.process_group
    backend = group._get_backend(wrapper.device)  # noqa: SLF001 - nothing public tells the timeout
    processes.join_(group, backend.options._timeout)  # noqa: SLF001 - as above


def _check_can_follow(wrapper: Any) -> None:  # noqa: ANN401 - parts that torch does not type
    """Refuse wrappers that know more of their parameters than can be cut.

    Raises:
        ArgumentError: If it is such a wrapper.
    """
    states = [state for _, state in wrapper._comm_hooks]  # noqa: SLF001 - nothing public tells
    known = {
        "mixed_precision": wrapper.mixed_precision is not None,
        "delay_all_reduce_named_params": bool(wrapper._delay_all_reduce_params),  # noqa: SLF001
        "a communication hook with a state": any(
            state is not None and not isinstance(state, ProcessGroup)
            for state in states
        ),
    }
    found = [name for name, is_used in known.items() if is_used]
    if found:
        raise ArgumentError(
            f"DistributedDataParallel with {found[0]} cannot follow when units are "
            "removed: it knows the shapes of parameters.\nLeave that out while the "
            "model shrinks; `torch.autocast` gives mixed precision."
        )


def _renew_if_stale_(wrapper: DistributedDataParallel, _: object) -> None:
    """Hook: the wrapper is about to be called."""
    if not torch.compiler.is_compiling() and _is_stale(wrapper):
        _renew_(wrapper)


def _is_stale(wrapper: DistributedDataParallel) -> bool:
    """Whether a wrapper does not know exactly the parameters of its module."""
    known, now = wrapper._module_parameters, _parameters(wrapper)  # noqa: SLF001 - nothing public tells
    return len(known) != len(now) or any(a is not b for a, b in zip(known, now))  # noqa: B905 - as long


def _parameters(wrapper: DistributedDataParallel) -> list[nn.Parameter]:
    ignored = wrapper.parameters_to_ignore
    named = wrapper.module.named_parameters()
    return [parameter for name, parameter in named if name not in ignored]


def _renew_(wrapper: Any) -> None:  # noqa: ANN401 - parts that torch does not type
    """Register the parameters anew, as a wrapper does that is read from a file."""
    wrapper._module_parameters = _parameters(wrapper)  # noqa: SLF001 - as in torch's own `__setstate__`
    parameters, is_sparse = wrapper._build_params_for_reducer()  # noqa: SLF001 - as above
    names = wrapper._build_debug_param_to_name_mapping(parameters)  # noqa: SLF001 - as above
    is_static = wrapper.static_graph
    wrapper._ddp_init_helper(parameters, is_sparse, names, is_static)  # noqa: SLF001 - as above
    wrapper._has_rebuilt_buckets = False  # noqa: SLF001 - as above
    if is_static:
        wrapper._static_graph_delay_allreduce_enqueued = False  # noqa: SLF001 - as above
        wrapper.reducer._set_static_graph()  # noqa: SLF001 - as above
        wrapper.logger._set_static_graph()  # noqa: SLF001 - as above
    for hook, state in wrapper._comm_hooks:  # noqa: SLF001 - as above
        distributed._register_comm_hook(wrapper.reducer, state, hook)  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage] - as above

"""Neural networks that get smaller while they train.

Names are imported when they are first used: torch takes seconds, and neither
`diffprune --help` nor a spelling mistake should have to wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffprune.budget import Budget as Budget
    from diffprune.checkpoint import (
        load_checkpoint as load_checkpoint,
        save_checkpoint as save_checkpoint,
    )
    from diffprune.experiment import (
        Recipe as Recipe,
        Task as Task,
        read_run as read_run,
        train as train,
    )
    from diffprune.export import (
        to_exported_program as to_exported_program,
        to_onnx as to_onnx,
    )
    from diffprune.gates import (
        ApproximateBernoulli as ApproximateBernoulli,
        Gate as Gate,
        fold_gates as fold_gates,
        g as g,
        gate_weight as gate_weight,
    )
    from diffprune.graph import (
        Groups as Groups,
        PruneGroup as PruneGroup,
        find_groups as find_groups,
    )
    from diffprune.penalty import (
        expected_l0 as expected_l0,
        parameter_groups as parameter_groups,
    )
    from diffprune.pruner import (
        Pruner as Pruner,
        by_macs as by_macs,
        by_parameters as by_parameters,
    )
    from diffprune.saving import (
        load_pretrained as load_pretrained,
        load_pruned as load_pruned,
        save_pruned as save_pruned,
    )
    from diffprune.sparse import (
        load_sparse as load_sparse,
        save_sparse as save_sparse,
    )
    from diffprune.surgery import (
        Plan as Plan,
        apply_plan as apply_plan,
        compact as compact,
        plan_removal as plan_removal,
        remove as remove,
    )

_PUBLIC = {
    "budget": ("Budget",),
    "checkpoint": ("load_checkpoint", "save_checkpoint"),
    "experiment": ("Recipe", "Task", "read_run", "train"),
    "export": ("to_exported_program", "to_onnx"),
    "gates": ("ApproximateBernoulli", "Gate", "fold_gates", "g", "gate_weight"),
    "graph": ("Groups", "PruneGroup", "find_groups"),
    "penalty": ("expected_l0", "parameter_groups"),
    "pruner": ("Pruner", "by_macs", "by_parameters"),
    "saving": ("load_pretrained", "load_pruned", "save_pruned"),
    "sparse": ("load_sparse", "save_sparse"),
    "surgery": ("Plan", "apply_plan", "compact", "plan_removal", "remove"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'diffprune' has no attribute {name!r}")
    return getattr(import_module(f"diffprune.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)

"""Removals as data, for people with a criterion of their own: plans, masks, proofs.

The classes are what other functions return: `find_groups` gives `Groups` of
`PruneGroup`s, `removal` a `Removal`; `Pruner(on_removal=...)` is called with a
`RemovalRecord`, and `shrink(report=...)` with a `ShrinkReport`.
"""

from diffprune._graph import FrozenAxis, Groups, PruneGroup, TensorAxis
from diffprune._pruner import RemovalRecord
from diffprune._shrink import ShrinkReport
from diffprune._surgery import (
    Certificate,
    Plan,
    Removal,
    apply_plan,
    apply_plan_,
    certify,
    compaction,
    mask,
    plan_removal,
    removal,
)

__all__ = [
    "Certificate", "FrozenAxis", "Groups", "Plan", "PruneGroup", "Removal",
    "RemovalRecord", "ShrinkReport", "TensorAxis", "apply_plan", "apply_plan_",
    "certify", "compaction", "mask", "plan_removal", "removal",
]  # fmt: skip

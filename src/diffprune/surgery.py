"""Removals as data, for a criterion of your own: plans, masks and certificates.

The classes are what other functions return: `find_groups` returns `Groups` of
`PruneGroup`s, and `removal` returns a `Removal`. The function that you pass as
`Pruner(on_removal=...)` is called with a `RemovalRecord`, and that of
`shrink(report=...)` with a `ShrinkReport`.
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

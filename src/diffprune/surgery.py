"""Removals as data, for people with a criterion of their own: plans, masks, proofs."""

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
    "Certificate", "Plan", "Removal", "apply_plan", "apply_plan_", "certify",
    "compaction", "mask", "plan_removal", "removal",
]  # fmt: skip

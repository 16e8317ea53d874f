"""The laws of the library as functions, to hold your model, rule or gate against them.

Each function takes what you have, draws random units and compares; it returns what it
found, and raises an `AssertionError` that says which law is broken and where. The tests
of diffprune call these same functions over their zoo and over random networks.
"""

from diffprune.testing.gate_laws import check_gate as check_gate
from diffprune.testing.group_laws import (
    check_groups as check_groups,
    check_rule as check_rule,
)
from diffprune.testing.removal_laws import (
    check_composition as check_composition,
    check_removal as check_removal,
    check_round_trip as check_round_trip,
    random_keep as random_keep,
)
from diffprune.testing.training_laws import (
    check_training_commutes as check_training_commutes,
)

__all__ = [
    "check_composition", "check_gate", "check_groups", "check_removal",
    "check_round_trip", "check_rule", "check_training_commutes", "random_keep",
]  # fmt: skip

"""Neural networks that get smaller while they train."""

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
from diffprune.surgery import (
    Plan as Plan,
    apply_plan as apply_plan,
    plan_removal as plan_removal,
    remove as remove,
)

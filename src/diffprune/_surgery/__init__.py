"""Cutting models, given masks; from wherever these come."""

from diffprune._surgery.apply import (
    apply_plan as apply_plan,
    apply_plan_ as apply_plan_,
)
from diffprune._surgery.compact import (
    compact as compact,
    compaction as compaction,
    compaction_of_groups as compaction_of_groups,
)
from diffprune._surgery.compare import Certificate as Certificate
from diffprune._surgery.equivalence import certify as certify
from diffprune._surgery.masking import mask as mask
from diffprune._surgery.plan import (
    Plan as Plan,
    plan_removal as plan_removal,
)
from diffprune._surgery.remove import (
    Removal as Removal,
    removal as removal,
    remove as remove,
)

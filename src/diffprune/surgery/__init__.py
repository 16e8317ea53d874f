"""Cutting models, given masks; from wherever these come."""

from diffprune.surgery.apply import apply_plan as apply_plan, apply_plan_ as apply_plan_
from diffprune.surgery.compact import compact as compact, compaction as compaction
from diffprune.surgery.plan import (
    Certificate as Certificate,
    Plan as Plan,
    plan_removal as plan_removal,
)
from diffprune.surgery.remove import (
    Removal as Removal,
    removal as removal,
    remove as remove,
)
from diffprune.surgery.verify import certify as certify, mask as mask

"""Neural networks that get smaller while they train."""
from diffprune.graph import Groups as Groups, PruneGroup as PruneGroup
from diffprune.graph import find_groups as find_groups
from diffprune.surgery import Plan as Plan, apply_plan as apply_plan
from diffprune.surgery import plan_removal as plan_removal, remove as remove

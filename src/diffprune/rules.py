"""How to teach diffprune an op: what a rule is given, and what it may say.

Pass `rules={torch.ops.aten.roll: rule}` to `find_groups`, `remove`, `compact` or
`Pruner`. A rule is an `OpRule`, or a function that states the axes alone.
"""

from diffprune._graph import (
    Axes,
    Call,
    Op,
    OpRule,
    Rule,
    Step,
    Unsupported,
    Value,
    Zeros,
    always_zero,
    never_zero,
    zero_if_all,
    zero_if_any,
    zero_if_first,
    zero_if_parts,
    zero_if_tried,
    zero_rows,
)

__all__ = [
    "Axes", "Call", "Op", "OpRule", "Rule", "Step", "Unsupported", "Value", "Zeros",
    "always_zero", "never_zero", "zero_if_all", "zero_if_any", "zero_if_first",
    "zero_if_parts", "zero_if_tried", "zero_rows",
]  # fmt: skip

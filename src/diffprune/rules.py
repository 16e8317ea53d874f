"""How to teach diffprune an operation: what a rule is given, and what it may say."""

from diffprune._graph.ops import Op, Rule
from diffprune._graph.rule_api import Axes, Call, Value

__all__ = ["Axes", "Call", "Op", "Rule", "Value"]

"""What a rule is; knows no op."""

from collections.abc import Callable
from typing import Any, TypeAlias

from torch._ops import OpOverload, OpOverloadPacket

from diffprune._graph.rule_api import Axes

Op: TypeAlias = OpOverloadPacket | OpOverload
Rule: TypeAlias = Callable[..., Axes | list[Axes]]
Anything: TypeAlias = Any

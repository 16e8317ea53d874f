"""What a rule is; knows no op."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torch._ops import OpOverload, OpOverloadPacket

from diffprune.graph.call import Axes

Op: TypeAlias = OpOverloadPacket | OpOverload
Rule: TypeAlias = Callable[..., Axes | Sequence[Axes]]
Number: TypeAlias = int | float | bool | None
Anything: TypeAlias = Any

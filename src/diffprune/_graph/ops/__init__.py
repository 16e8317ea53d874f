"""How every supported op maps axes: one table, assembled from the files beside it.

A rule is a function `(call, *arguments of the op) -> axes of the output`, written as
the op's formula would be. An op without a rule freezes what it touches.
"""

from collections.abc import Mapping
from typing import Final

from diffprune._graph.ops import (
    attention,
    contractions,
    indexing,
    normalisation,
    pointwise,
    recurrent,
    reductions,
    shapes,
    spatial,
)
from diffprune._graph.ops.types import Op as Op, Rule as Rule

RULES: Final[Mapping[Op, Rule]] = {
    **pointwise.RULES,
    **contractions.RULES,
    **normalisation.RULES,
    **shapes.RULES,
    **indexing.RULES,
    **reductions.RULES,
    **spatial.RULES,
    **attention.RULES,
    **recurrent.RULES,
}

"""What every supported op means: one table, assembled from the files beside it.

An entry is an `OpRule`, whose `axes` is written as the op's formula would be. An op
without an entry freezes what it touches, unless ATen tags it as element-wise.
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch._ops import OpOverload, OpOverloadPacket

from diffprune._graph.ops import (
    attention,
    contractions,
    frequencies,
    indexing,
    losses,
    matrices,
    normalisation,
    pointwise,
    recurrent,
    reductions,
    shapes,
    spatial,
    writing,
)
from diffprune._graph.rule_api import Op, OpRule

RULES: Final[Mapping[Op, OpRule]] = {
    **pointwise.RULES,
    **contractions.RULES,
    **normalisation.RULES,
    **shapes.RULES,
    **indexing.RULES,
    **reductions.RULES,
    **spatial.RULES,
    **attention.RULES,
    **recurrent.RULES,
    **writing.RULES,
    **frequencies.RULES,
    **matrices.RULES,
    **losses.RULES,
}


BLIND: Final = frozenset((*pointwise.LIKE, *shapes.NEW))
"""Ops that read no value of their first argument."""


def find_rule(op: object, rules: Mapping[Op, OpRule]) -> OpRule | None:
    """The rule of the overload, of the op, or the element-wise one."""
    packet = functional_op(op)
    if not isinstance(op, OpOverload) or packet is None:
        return None
    overloads = [getattr(packet, name) for name in packet.overloads()]
    is_pointwise = any(torch.Tag.pointwise in overload.tags for overload in overloads)
    default = pointwise.ELEMENTWISE if is_pointwise else None
    return rules.get(op) or rules.get(packet, default)


def functional_op(target: object) -> OpOverloadPacket | None:
    """The op a node calls; for `add_` the `add` it does in place."""
    if not isinstance(target, OpOverload):
        return None
    packet = target.overloadpacket
    if not is_in_place(target):
        return packet
    name = packet.__name__[:-1]
    return getattr(getattr(torch.ops, target.namespace), name, packet)


def is_in_place(op: OpOverload) -> bool:
    """Whether later reads of the first argument refer to the output in a trace."""
    name = op.overloadpacket.__name__
    return name.endswith("_") and not name.endswith("__")

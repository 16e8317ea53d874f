"""All methods by name, and which of them are compared where."""

from collections.abc import Callable, Sequence
from functools import partial

from torch import nn

from benchmarks.choice import ours, peer
from benchmarks.choice.names import (
    BY_HAND,
    CONCRETE,
    GATED,
    GATED_SCRATCH,
    LASSO,
    LOT,
    OURS,
    PEER,
    REFIT,
    SCRATCH,
)
from benchmarks.choice.tasks import Task

MakeCut = Callable[[nn.Module, Task, int, float], ours.Cut]
"""From the pretrained network, its task, a seed and a target to a smaller network."""


def maker(method: str) -> MakeCut:
    """Find a method by its name."""
    plain, refit = method.removesuffix(REFIT), method.endswith(REFIT)
    if method == OURS:
        return ours.shrink
    if plain == LOT:
        return partial(ours.lot, refit=refit)
    if plain in BY_HAND:
        power = 1 + BY_HAND.index(plain)
        return partial(ours.by_magnitude, power=power, refit=refit)
    if method == SCRATCH:
        return ours.from_scratch
    return partial(peer.cut, way=peer.WAYS[plain], refit=refit)


def compared(peers: Sequence[str], compute: float) -> list[str]:
    """The methods of a column of the table, the most telling ones first.

    Args:
        peers: Those that were kept, the best first.
        compute: Training compute.
    """
    if not compute:
        with_refit = [name + REFIT for name in (*peers, LOT)]
        return [OURS, *peers, LOT, *with_refit]
    telling = [OURS, GATED, peers[0], peers[0] + REFIT, SCRATCH]
    if compute == 1:
        lasso = [LASSO] if peers[0].startswith(PEER) else []
        return [*telling, GATED_SCRATCH, *lasso, CONCRETE]
    return [*telling, *peers[1:], LOT + REFIT]

"""The zoo: small networks that judge group discovery and removal.

Widths are prime and distinct wherever the operation allows, so that no two axes can
be confused; every class shows its topology. `ZOO[name]()` gives the model, in eval
mode and float64 with random parameters, and its example inputs; `ZOO[name].expect`
says what group discovery must find. `analysed(name)` gives the same model to every test
with its groups, which are found once; no test may change any of the three.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from torch import nn

import diffprune as dp

from . import (
    attention,
    branches,
    convs,
    couplings,
    frequencies,
    interfaces,
    messages,
    norms,
    objectives,
    perceptrons,
    recurrent,
    reshapes,
    selections,
    spatial,
    torch_attention,
    transformers,
)
from .entry import Entry, Expect, Inputs, call, replayed

__all__ = ["ZOO", "Analysed", "Entry", "Expect", "analysed", "call", "replayed"]

ZOO: dict[str, Entry] = {
    **perceptrons.ENTRIES,
    **convs.ENTRIES,
    **norms.ENTRIES,
    **spatial.ENTRIES,
    **branches.ENTRIES,
    **reshapes.ENTRIES,
    **attention.ENTRIES,
    **torch_attention.ENTRIES,
    **transformers.ENTRIES,
    **recurrent.ENTRIES,
    **interfaces.ENTRIES,
    **couplings.ENTRIES,
    **messages.ENTRIES,
    **selections.ENTRIES,
    **frequencies.ENTRIES,
    **objectives.ENTRIES,
}


class Analysed(NamedTuple):
    """A network of the zoo, its inputs and its groups."""

    model: nn.Module
    inputs: Inputs
    groups: Sequence


@cache
def analysed(name: str) -> Analysed:
    """The network of this name, traced once for all tests of a process."""
    model, inputs = ZOO[name]()
    return Analysed(model, inputs, dp.find_groups(model, inputs))

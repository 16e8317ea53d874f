"""The zoo: small networks that judge group discovery and removal.

Widths are prime and distinct wherever the operation allows, so that no two axes can
be confused; every class shows its topology. `ZOO[name]()` gives the model, in eval
mode and float64 with random parameters, and its example inputs; `ZOO[name].expect`
says what group discovery must find.
"""

from . import (
    attention,
    branches,
    convs,
    couplings,
    interfaces,
    norms,
    perceptrons,
    recurrent,
    reshapes,
    spatial,
    transformers,
)
from .entry import Entry, Expect, call

__all__ = ["ZOO", "Entry", "Expect", "call"]

ZOO: dict[str, Entry] = {
    **perceptrons.ENTRIES,
    **convs.ENTRIES,
    **norms.ENTRIES,
    **spatial.ENTRIES,
    **branches.ENTRIES,
    **reshapes.ENTRIES,
    **attention.ENTRIES,
    **transformers.ENTRIES,
    **recurrent.ENTRIES,
    **interfaces.ENTRIES,
    **couplings.ENTRIES,
}

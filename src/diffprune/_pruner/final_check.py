"""Certify in full what `finalize` is about to do, before anything is changed."""

from functools import partial
from typing import Any

import torch
from torch import nn

from diffprune._pruner.gated_model import GatedModel
from diffprune._pruner.placement import Cut
from diffprune._surgery.compare import Certificate
from diffprune._surgery.diagnose import layout
from diffprune._surgery.double_precision import in_double
from diffprune._surgery.equivalence import Twins, certify
from diffprune._surgery.scramble import scrambled


def certify_end(gated: GatedModel[Any], cut: Cut) -> Certificate:
    """Compare a model with gates with what is left of it without them.

    On the example and on inputs of our own, with these weights and with scrambled ones,
    in eval mode, and in train mode unless gates are noisy there. All in double
    precision if the model runs in it: the gates are folded into copies.

    Args:
        gated: The model; it stays as it is.
        cut: What the last removal keeps.

    Raises:
        RemovalError: If the two differ.
    """
    fine = in_double(gated.model, gated.example_inputs)
    removed = None if cut.keeps_all() else cut
    return certify(
        fine.model,
        gated.plain(fine.model, removed),
        fine.inputs,
        kept=partial(layout, gated.groups, cut.by_group()),
        modes=gated.modes,
        twins=partial(_twins, gated, removed, fine.model),
    )


@torch.no_grad()
def _twins(gated: GatedModel[Any], cut: Cut | None, model: nn.Module) -> Twins:
    """The same with other weights; gates stay, as the closed ones have to."""
    other = scrambled(model)
    gates = gated.placement.gates(model)
    for name, gate in gated.placement.gates(other).items():
        own = dict(gates[name].named_parameters())
        for key, parameter in gate.named_parameters():
            parameter.copy_(own[key])
    return Twins(other, gated.plain(other, cut), modes=gated.modes)

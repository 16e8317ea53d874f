"""What a pickled pruner consists of.

A trace cannot be pickled. So what is kept is a plain model of the first shapes, from
which the same gates can be made again, beside what a checkpoint holds.
"""

import io
import pickle
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from diffprune._core.copying import copied
from diffprune._core.modules import MARK
from diffprune._pruner.added_gates import AddedGates
from diffprune._pruner.gated_model import GatedModel
from diffprune.errors import ArgumentError


def first_model(gated: GatedModel[Any]) -> nn.Module:
    """A copy of a model as it was before gates and removals; weights may be zero.

    Raises:
        ArgumentError: If that cannot be made again.
    """
    if gated.copies:
        raise ArgumentError(
            f"{len(gated.copies)} copies follow this pruner, and would not follow a "
            "pickled one.\nUse `dp.save_checkpoint`, and save the copies' own states."
        )
    if isinstance(gated.placement, AddedGates):
        model = gated.without_gates()
    elif gated.is_folded:
        raise ArgumentError(
            "the gates that you placed have been folded away, so this pruner cannot be "
            "pickled.\nPickle what `finalize` returns, or use `dp.save_checkpoint`."
        )
    else:
        model = copied(gated.model)
        vars(model).pop(MARK)
    gated.first_shapes.restore_(model)
    return model.train(gated.model.training)


def check_pickles(parts: Mapping[str, object]) -> None:
    """Name the first part that cannot be pickled, before anything is written.

    Raises:
        ArgumentError: If there is one.
    """
    for name, part in parts.items():
        try:
            _Probe(io.BytesIO()).dump(part)
        except Exception as error:
            raise ArgumentError(
                f"this pruner cannot be pickled because of `{name}`: {error}\n"
                "Functions and classes have to be importable by name, which lambdas "
                "and what is defined inside a function are not. `dp.save_checkpoint` "
                "works with any."
            ) from error


class _Probe(pickle.Pickler):
    """Pickles without the numbers of tensors."""

    def persistent_id(self, obj: object) -> str | None:
        """Leave tensors out."""
        return "a tensor" if isinstance(obj, Tensor) else None

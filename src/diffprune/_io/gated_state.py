"""A `state_dict` that says what was removed: read it, and cut a plain model to it.

The state of a pruner is one more tensor of a `state_dict`, of bytes: data, no code. It
names what was removed, and another one what the gates would multiply each weight by.
"""

import io
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from diffprune._core.modules import GATES
from diffprune._surgery.apply import apply_plan_
from diffprune._surgery.first_shapes import FirstShapes
from diffprune._surgery.plan import Plan
from diffprune.errors import ArgumentError

KEY: Final = "_diffprune_state"
SCALES: Final = "_diffprune_scales"
PLACED: Final = "placed by hand"

Scale: TypeAlias = tuple[list[str], int, int]
"""The names of a parameter, a dimension, and how many factors there are for it."""


def as_tensor(state: Mapping[str, Any]) -> Tensor:
    """Data and tensors as bytes, which every file format for tensors can hold."""
    file = io.BytesIO()
    torch.save(dict(state), file)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def take_state(
    state_dict: MutableMapping[str, Any], prefix: str = ""
) -> tuple[dict[str, Any], Tensor] | None:
    """Take the state of a pruner out of a `state_dict`, with what gates multiply by.

    Returns:
        None if there is none.

    Raises:
        ArgumentError: If it is damaged.
    """
    found = state_dict.pop(prefix + KEY, None)
    scales = state_dict.pop(prefix + SCALES, torch.empty(0))
    if found is None:
        return None
    try:
        file = io.BytesIO(found.cpu().numpy().tobytes())
        state = torch.load(file, weights_only=True, map_location="cpu")
        missing = {"plan", "scales"} - state.keys()
    except Exception as error:
        raise ArgumentError(
            f"`{prefix + KEY}` in this state is damaged: {error!r}"
        ) from error
    if missing:
        raise ArgumentError(f"`{prefix + KEY}` in this state lacks {sorted(missing)}.")
    return state, scales


def load_plain_(
    model: nn.Module,
    state_dict: MutableMapping[str, Any],
    prefix: str = "",
    first: FirstShapes | None = None,
) -> bool:
    """Cut a plain model to what a gated one has saved; the gates become weights.

    Args:
        model: A model as it was before pruning.
        state_dict: What was saved. It is changed to what the small model can load.
        prefix: What the names of the model begin with there.
        first: Shapes to go back to, if the model was cut before.

    Returns:
        Whether the state was one of a pruned model; otherwise nothing has changed.

    Raises:
        ArgumentError: If the state is that of another model, or of one whose gates were
            placed by hand.
    """
    found = take_state(state_dict, prefix)
    if found is None:
        return False
    state, scales = found
    if state["scales"] == PLACED:
        raise ArgumentError(
            "the gates of this model were placed by hand, and only a pruner can fold "
            "them.\nMake the pruner as in the saved run and load the state with it."
        )
    if first is not None:
        first.restore_(model)
    apply_plan_(model, Plan.from_json(state["plan"]))
    for name in [n for n in state_dict if n.startswith(prefix) and GATES in n]:
        del state_dict[name]
    layout: list[Scale] = state["scales"] or []
    parts = scales.split([length for *_, length in layout])
    for (names, dim, _), factors in zip(layout, parts, strict=True):
        for name in names:
            if prefix + name in state_dict:
                whole: Tensor = state_dict[prefix + name]
                shape = [-1, *(1,) * (whole.ndim - 1 - dim)]
                state_dict[prefix + name] = whole * factors.to(whole).view(shape)
    return True

"""What a campaign gives and is rightly accepted, and other words for arguments.

Every reason covers a kind of argument, or some values of one argument; whatever else is
accepted is a failure.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

NAMED_BY = {
    "accelerator": ("processes",),
    "base": ("distribution",),
    "batch_dim": ("batch dimension",),
    "budget": ("cannot be met", "limits something"),
    "data": ("batch",),
    "example_inputs": ("inputs",),
    "example_input": ("inputs",),
    "folder": ("blueprint.json", "run"),
    "gate": ("gates",),
    "groups": ("keep: the mask", "the plan cuts"),
    "heads": ("nothing in this model",),
    "layer": ("parameter",),
    "make_model": ("model",),
    "make_task": ("task",),
    "masks": ("there is no group",),
    "model": ("no group", "network", "gates", "layer"),
    "module": ("model",),
    "optimizers": ("optimizer",),
    "path": ("file",),
    "pruner": ("state",),
    "rules": ("rule",),
    "runs": ("run",),
    "small": ("smaller model",),
    "strength": ("nothing in this model",),
    "text": ("plan",),
    "vary": ("sweep",),
}
"""What messages call an argument, where that says more than its name."""


class Accepted(NamedTuple):
    """Calls that are right, by pattern."""

    door: str
    argument: str
    value: str
    annotation: str
    reason: str


ACCEPTED: tuple[Accepted, ...] = ()


def reason_for(door: str, argument: str, value: str, annotation: str) -> str | None:
    """Why a call is right although it was meant to be wrong; None if it is not."""
    for one in ACCEPTED:
        pairs = zip((door, argument, value, annotation), one[:4], strict=True)
        if all(fnmatchcase(text, pattern) for text, pattern in pairs):
            return one.reason
    return None

"""What it costs to know what units are worth, step by step."""

from collections.abc import Callable

import torch

import diffprune as dp

from ._timing import Measurement, ratio
from .pruner_speed import Case, cases, loop

RECIPE = {
    "what": "a gated training step over the same step that keeps no running squares, "
    "in turns in one process; and a thousand times what a step does for the squares, "
    "over one such step: 10 is one per cent. Adam, one thread",
    "LeNet-5": "batch 100 of 1x28x28",
    "small transformer": "4 layers, width 128, batch 16 of 64 tokens",
}
_ROUNDS = {"LeNet-5": 150, "small transformer": 40}


def _pruner(case: Case) -> dp.Pruner[torch.nn.Module]:
    return dp.Pruner(
        case.build(), case.x[:2], strength=1e-5, remove_every=lambda _step: False
    )


def _step(case: Case, *, listens: bool) -> Callable[[], None]:
    pruner = _pruner(case)
    if not listens:
        slopes = pruner._gated.pooled.slopes  # noqa: SLF001 - nothing public stops it
        slopes.hear = lambda *_: None
        slopes.end_step = lambda *_: None
    return loop(pruner.model, case.x, case.y, pruner)


def _squares_alone(case: Case) -> Callable[[], None]:
    """A thousand times what a step does with the gradients of its gates."""
    slopes = _pruner(case)._gated.pooled.slopes  # noqa: SLF001 - as above
    sizes = slopes.squares()
    names, units = tuple(sizes), sum(map(len, sizes.values()))
    gradient = torch.randn(units)

    def run() -> None:
        for _ in range(1000):
            slopes.hear(names, gradient)
            slopes.end_step()

    return run


def measure() -> tuple[Measurement, ...]:
    """Both, for a small network and for a transformer."""
    torch.manual_seed(0)
    found = list[Measurement]()
    for name, rounds in _ROUNDS.items():
        case = cases()[name]
        names = f"{name} step, gated", f"{name} step, gated, without evidence"
        heard, deaf = (_step(case, listens=listens) for listens in (True, False))
        found.append(ratio(heard, deaf, names=names, rounds=rounds, target=1.01))
        alone = _squares_alone(case)
        names = "1000 x evidence of a step", names[1]
        found.append(ratio(alone, deaf, names=names, rounds=20, target=10.0))
    return tuple(found)

"""What it costs to certify a removal, in training steps."""

import copy
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

import diffprune as dp
from diffprune._surgery.equivalence import OutputCheck

from ._timing import Measurement, ratio
from .pruner_speed import Case, cases

RECIPE = {
    "what": "the runs that certify a live removal, before and after, over a training "
    "step of the same gated network; example inputs of the size of the training batch, "
    "and of two rows",
    "networks": "those of pruner_speed",
}
TARGET = 2.0


def _step(case: Case, model: nn.Module) -> Callable[[], None]:
    pruner = dp.Pruner(model, case.x[:2], strength=1e-5)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-4), lr=1e-4)

    def step() -> None:
        loss = F.cross_entropy(model(case.x).flatten(0, -2), case.y.flatten())
        optimizer.zero_grad()
        (loss + pruner.penalty()).backward()
        optimizer.step()

    return step


def _certify(case: Case, model: nn.Module, rows: int) -> Callable[[], None]:
    return lambda: OutputCheck(model, case.x[:rows]).certify() and None


def measure() -> tuple[Measurement, ...]:
    """Certification over a training step, for several networks."""
    torch.manual_seed(0)
    found = list[Measurement]()
    for name, case in cases().items():
        for rows in (2, len(case.x)):
            model = case.build()
            step = _step(case, model)
            certify = _certify(case, copy.deepcopy(model), rows)
            names = (f"{name}, certificate on {rows} rows", f"{name} step, gated")
            rounds = max(8, case.rounds // 5)
            found.append(
                ratio(certify, step, names=names, rounds=rounds, target=TARGET)
            )
    return tuple(found)

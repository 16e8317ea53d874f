"""Cuts a model with diffprune, through its public names only."""

import subprocess
from collections import Counter
from pathlib import Path

import torch
from torch import nn

from benchmarks.coverage.case import Inputs
from benchmarks.coverage.verdict import Cut, RefusedError
from diffprune._graph import Groups, find_groups
from diffprune._surgery import removal
from diffprune.errors import DiffpruneError

NAME = "diffprune"


def cut(model: nn.Module, inputs: Inputs, ratio: float) -> Cut:
    """Remove a random share of every group that diffprune finds.

    Raises:
        RefusedError: If diffprune declines, or finds nothing to remove.
    """
    try:
        groups = find_groups(model, inputs)
        if not len(groups):
            raise RefusedError(main_reason(groups))
        keeps = {group.name: random_mask(group.size, ratio) for group in groups}
        return Cut(removal(model, inputs, groups, keep=keeps).model, len(keeps))
    except DiffpruneError as error:
        raise RefusedError(str(error)) from error


def main_reason(groups: Groups) -> str:
    """The two commonest reasons why nothing can be cut."""
    reasons = Counter(axis.reason.why for axis in groups.frozen)
    return "; ".join(f"{why} ({n} axes)" for why, n in reasons.most_common(2))


def random_mask(size: int, ratio: float) -> torch.Tensor:
    """Keeps all but a random share of the units, and always at least one.

    Examples:
        >>> int(random_mask(10, 0.3).sum()), int(random_mask(1, 0.3).sum())
        (7, 1)
    """
    kept = max(1, size - round(size * ratio))
    return torch.rand(size).argsort() < kept


def commit() -> str:
    """The commit that is measured, marked when the tree differs from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    folder = Path(__file__).parent
    done = subprocess.run(  # noqa: S603 (a constant command)
        command, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()

"""Judges a cut by its outputs alone; does not know which library made it.

A cut is exact when the smaller model and the masked original compute the same function:
on the example, on other inputs, and in train mode.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree

from benchmarks.coverage.case import Inputs
from benchmarks.coverage.macs import MacCounter
from benchmarks.coverage.survivors import mask_

# Some transformers compute norms and rotary angles in float32 whatever their weights.
TOLERANCE = 1e-5


class Status(enum.StrEnum):
    """How an attempt to prune a model ended."""

    EXACT = "exact"
    WRONG = "wrong"
    REFUSED = "refused"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    MEMORY = "memory"


class RefusedError(Exception):
    """The library declined to prune; the message is its reason."""


@dataclass(frozen=True)
class Cut:
    """What a library returns: the smaller model and how many groups it cut."""

    model: nn.Module
    groups: int


@dataclass(frozen=True)
class Verdict:
    """The measurements behind one status.

    Args:
        error: Distance of the smaller model from the masked original, relative; the
            largest of all that were compared.
        effect: Distance of the masked from the unmasked original, relative. Without
            an effect well above the tolerance the check could not have failed.
        params_share: Share of parameters in tensors that lost at least one entry.
        macs_share: Share of multiply-accumulates in operations that became cheaper.
        other_inputs: Whether other inputs than the example were compared; the oldest
            records do without.
        train_mode: Whether train mode was; not where it draws numbers of its own even
            with dropout off, or where the original does not run.
    """

    status: Status
    error: float
    effect: float
    params: int
    params_after: int
    params_share: float
    macs: int
    macs_after: int
    macs_share: float
    other_inputs: bool = False
    train_mode: bool = False


@torch.no_grad()
def judge_(original: nn.Module, small: nn.Module, inputs: Inputs) -> Verdict:
    """Compare a smaller model with the masked original; masks `original` in place.

    Both are left in train mode.

    Raises:
        RefusedError: If nothing was removed.
        ArithmeticError: If the models are too degenerate for a comparison.
    """
    params, params_after = count(original), count(small)
    before, _ = run(original, inputs)
    prunable = mask_(original, small)
    if not prunable:
        raise RefusedError("nothing was removed")
    masked, macs = run(original, inputs)
    after, macs_after = run(small, inputs)
    error, effect = distance(after, masked), distance(masked, before)
    if not effect > 10 * TOLERANCE:
        raise ArithmeticError(f"removal has no visible effect ({effect:.1e})")
    others = redrawn(inputs)
    error = max(error, distance(run(small, others)[0], run(original, others)[0]))
    is_trained = learns_alike_(original, inputs)
    if is_trained:
        pair = trained_(small, others), trained_(original, others)
        error = max(error, distance(*pair))
    return Verdict(
        status=Status.EXACT if error <= TOLERANCE else Status.WRONG,
        error=error,
        effect=effect,
        params=params,
        params_after=params_after,
        params_share=prunable / params,
        macs=sum(macs),
        macs_after=sum(macs_after),
        macs_share=cheaper_share(macs, macs_after),
        other_inputs=True,
        train_mode=is_trained,
    )


def redrawn(inputs: Inputs) -> Inputs:
    """Other numbers of the same mean and spread; integers change places."""
    draw = torch.Generator().manual_seed(1)
    found = list[Tensor]()
    for x in inputs:
        if x.is_floating_point():
            noise = torch.randn(x.shape, generator=draw, dtype=x.dtype)
            found.append(noise * x.std() + x.mean())
        else:
            order = torch.randperm(x.numel(), generator=draw)
            found.append(x.flatten()[order].view(x.shape))
    return tuple(found)


def trained_(model: nn.Module, inputs: Inputs, seed: int = 0) -> list[Tensor]:
    """All floating outputs in train mode, layers that only draw switched off."""
    model.train()
    for module in model.modules():
        if isinstance(module, _DropoutNd | nn.RReLU):
            module.eval()
    torch.manual_seed(seed)
    return run(model, inputs)[0]


def learns_alike_(model: nn.Module, inputs: Inputs) -> bool:
    """Whether the model runs in train mode, and what it returns is not random."""
    try:
        one, other = (trained_(model, inputs, seed) for seed in (0, 1))
    except Exception:  # noqa: BLE001 (the original's own limits are not our subject)
        return False
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def count(model: nn.Module) -> int:
    """Number of distinct parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def run(model: nn.Module, inputs: Inputs) -> tuple[list[Tensor], list[int]]:
    """All floating outputs, and the multiply-accumulates of every operation."""
    with sdpa_kernel(SDPBackend.MATH), MacCounter() as counter:
        output = model(*inputs)
    leaves = pytree.tree_leaves(output)
    return [x for x in leaves if torch.is_floating_point(x)], counter.calls


def distance(left: Iterable[Tensor], right: Iterable[Tensor]) -> float:
    """Largest difference, relative to the largest value; infinite if shapes differ."""
    left, right = list(left), list(right)
    pairs = list(zip(left, right, strict=False))
    if len(left) != len(right) or any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    if not all(x.isfinite().all() for x in chain.from_iterable(pairs)):
        raise ArithmeticError("outputs are not finite")
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def cheaper_share(before: list[int], after: list[int]) -> float:
    """Share of `before` in operations with a smaller entry in `after`."""
    if len(before) != len(after):
        return float("nan")
    pairs = zip(before, after, strict=True)
    return sum(b for b, a in pairs if a < b) / max(1, sum(before))

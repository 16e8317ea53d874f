"""Judges a cut by its outputs alone; does not know which library made it.

The masked original is the original with every parameter entry that the smaller model no
longer holds set to zero. Entries are recognised by value, so no library is asked what
it thinks it has removed. A cut is exact when both models compute the same function.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import torch
from benchmarks.coverage.case import Inputs
from benchmarks.coverage.macs import MacCounter
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

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
        error: Distance of the smaller model from the masked original, relative.
        effect: Distance of the masked from the unmasked original, relative. Without
            an effect well above the tolerance the check could not have failed.
        params_share: Share of parameters in tensors that lost at least one entry.
        macs_share: Share of multiply-accumulates in operations that became cheaper.
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


@torch.no_grad()
def judge_(original: nn.Module, small: nn.Module, inputs: Inputs) -> Verdict:
    """Compare a smaller model with the masked original; masks `original` in place.

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
    if not effect > 100 * TOLERANCE:
        raise ArithmeticError(f"removal has no visible effect ({effect:.1e})")
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
    )


def count(model: nn.Module) -> int:
    """Number of distinct parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def mask_(original: nn.Module, small: nn.Module) -> int:
    """Zero what `small` no longer holds; count the entries of the tensors touched.

    Example:
        >>> whole, part = nn.Linear(1, 3, bias=False), nn.Linear(1, 2, bias=False)
        >>> _ = part.weight.data.copy_(whole.weight[[0, 2]])
        >>> mask_(whole, part), whole.weight.flatten().ne(0).tolist()
        (3, [True, False, True])
    """
    survivors = dict(small.named_parameters(remove_duplicate=False))
    touched: set[Tensor] = set()
    for name, parameter in original.named_parameters(remove_duplicate=False):
        kept = survivors.get(name, parameter.new_empty(0))
        if kept.shape != parameter.shape and parameter not in touched:
            keep_(parameter, kept_indices(parameter, kept))
            touched.add(parameter)  # tied parameters come under every name
    return sum(parameter.numel() for parameter in touched)


def kept_indices(original: Tensor, small: Tensor) -> list[Tensor]:
    """Along each dimension, where the slices of `small` lie in `original`.

    The first entry of `small` is looked up by value; the lines through it along each
    dimension then show which slices are left.

    Raises:
        ArithmeticError: If `small` is not made of slices of `original`.

    Example:
        >>> original = torch.arange(12.0).view(3, 4)
        >>> kept_indices(original, original[[0, 2]][:, [1, 3]])
        [tensor([0, 2]), tensor([1, 3])]
    """
    if small.numel() == 0:
        return [torch.arange(0)] * original.ndim
    if small.ndim != original.ndim or not (original == small.flatten()[0]).any():
        raise ArithmeticError("a parameter was replaced, not cut")
    start = (original == small.flatten()[0]).nonzero()[0].tolist()
    indices, slices = [], original
    for dim in range(original.ndim):
        line = original[(*start[:dim], slice(None), *start[dim + 1 :])]
        short = small.movedim(dim, 0).flatten(1)[:, 0] if small.ndim > 1 else small
        indices.append((short[:, None] == line[None]).nonzero()[:, 1])
        slices = slices.index_select(dim, indices[-1])
    if not torch.equal(slices, small):
        raise ArithmeticError("a parameter was changed, not only cut")
    return indices


def keep_(parameter: Tensor, indices: Iterable[Tensor]) -> None:
    """Zero every slice that is not listed for its dimension."""
    for dim, kept in enumerate(indices):
        removed = torch.ones(parameter.shape[dim], dtype=torch.bool)
        removed[kept] = False
        parameter.index_fill_(dim, removed.nonzero().flatten(), 0)


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

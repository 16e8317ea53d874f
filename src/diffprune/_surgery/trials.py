"""Runs of a model that another model is compared on, and what each of them can show.

A trial is inputs, a mode, and what the original returned. One whose outputs are all
NaN, or the same whatever goes in, could not tell a wrong model from a right one; it
says so.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any, Final

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from diffprune._graph import ExampleInputs
from diffprune._surgery.compare import (
    Certificate,
    Comparison,
    Outputs,
    combined,
    outputs,
)
from diffprune._surgery.drawn_inputs import drawn, repeated, resized

RESIZED: Final = "inputs of another size"


@dataclass(frozen=True)
class Trial:
    """One run of the original.

    Attributes:
        name: In words: inputs, weights, mode.
        inputs: What it was given.
        training: Whether it was in train mode.
        returned: What it returned.
        doubt: Why a comparison could not fail; nothing if it could.
    """

    name: str
    inputs: Any
    training: bool
    returned: Outputs
    doubt: str = ""


@dataclass(frozen=True)
class Trials:
    """All runs of an original, and what it could not be tried on."""

    runs: tuple[Trial, ...]
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """How far the smaller model was from the original on a trial."""

    trial: Trial
    comparison: Comparison
    doubt: str = ""


def trials(
    model: nn.Module,
    inputs: ExampleInputs,
    *,
    training: bool,
    seeds: Sequence[int],
    weights: str = "",
    like: Sequence[Trial] = (),
) -> Trials:
    """Run a model on the example and on inputs of our own.

    Args:
        model: The original. It stays as it was.
        inputs: The example.
        training: In which mode.
        seeds: One for each of our own inputs; the second and later ones are wider.
        weights: What to call the weights, if they are not the model's own.
        like: Runs of the same model that were made before, the example among them; it
            is not run again then.
    """
    manner = f"{'train' if training else 'eval'} mode{weights and f', {weights}'}"
    examples = [inputs, repeated(inputs)] if training else [inputs]
    choices = [] if like else [(f"the example ({manner})", examples)]
    choices += [
        (
            f"drawn inputs ({manner})",
            chain(drawn(inputs, seed=seed, wide=place > 0), _more_rows(inputs, seed)),
        )
        for place, seed in enumerate(seeds)
    ]
    runs = [*like]
    for name, candidates in choices:
        found = _first_run(model, candidates, name, training=training, like=runs)
        runs += [] if found is None else [found]
    names = {run.name for run in runs}
    missing = [name for name, _ in choices if name not in names]
    doubts = [f"{name}: the model does not run on them" for name in missing]
    return Trials(_judged(runs)[len(like) :], tuple(doubts))


def resized_trial(
    model: nn.Module, inputs: ExampleInputs, like: Sequence[Trial]
) -> list[Trial]:
    """A run in eval mode on inputs of another size, if the model takes any.

    Args:
        model: The original. It stays as it was.
        inputs: The example.
        like: Other runs; where these show nothing, this one does not either.
    """
    name = f"{RESIZED} (eval mode)"
    run = _first_run(
        model, resized(inputs, rows=False), name, training=False, like=like
    )
    if run is None:
        return []
    said = "" if any(not other.doubt for other in like) else like[0].doubt
    return [replace(run, doubt=said or _doubt(run.returned, is_deaf=False))]


def _more_rows(inputs: ExampleInputs, seed: int) -> Iterator[Any]:
    yield from drawn(repeated(inputs), seed=seed)


def _first_run(
    model: nn.Module,
    candidates: Iterable[Any],
    name: str,
    *,
    training: bool,
    like: Sequence[Trial],
) -> Trial | None:
    """The first inputs that a model takes without returning NaN for the first time."""
    may_be_nan = any(not _is_finite(run.returned) for run in like)
    for inputs in candidates:
        try:
            returned = outputs(model, inputs, training=training)
        except Exception:  # noqa: BLE001, S112 - inputs of our own may be out of domain
            continue
        if may_be_nan or not like or _is_finite(returned):
            return Trial(name, inputs, training, returned)
    return None


def _is_finite(returned: Outputs) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in returned)


def _judged(runs: Sequence[Trial]) -> tuple[Trial, ...]:
    """The runs, each with what speaks against it."""
    pairs = list(combinations(runs, 2))
    is_varied = any(differ(a.inputs, b.inputs) for a, b in pairs)
    is_deaf = is_varied and not any(differ(a.returned, b.returned) for a, b in pairs)
    return tuple(replace(run, doubt=_doubt(run.returned, is_deaf)) for run in runs)


def _doubt(returned: Outputs, is_deaf: bool) -> str:  # noqa: FBT001 - private
    finite = [tensor[tensor.isfinite()] for tensor in returned]
    if not any(tensor.numel() for tensor in returned):
        return "the model returns no numbers"
    if not any(tensor.numel() for tensor in finite):
        return "all outputs are infinite or NaN"
    if is_deaf:
        return "outputs do not depend on the inputs"
    return "" if any(t.any() for t in finite) else "all outputs are zero"


def differ(one: object, other: object) -> bool:
    """Whether some number, finite in both, is another one."""
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=False)
    return any(_is_other(a, b) for a, b in pairs)


def _is_other(a: object, b: object) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    if a.shape != b.shape:
        return True
    return bool(((a != b) & a.isfinite() & b.isfinite()).any())


def certificate(findings: Sequence[Finding], doubts: Sequence[str]) -> Certificate:
    """All findings as plain data; NaN unless one of them could have failed."""
    return combined([_certificate(found) for found in findings], *doubts)


def _certificate(found: Finding) -> Certificate:
    shown, name = found.comparison.certificate, found.trial.name
    doubt = found.trial.doubt or found.doubt
    if not doubt:
        return replace(shown, compared=(name,))
    return Certificate(math.nan, math.nan, shown.dtype, doubts=(f"{name}: {doubt}",))

"""Certify that a smaller model computes what the masked original does.

Two models and example inputs go in; a `Certificate` comes out, or a `RemovalError` that
says where the two part.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar, final

import torch
from torch import nn

from diffprune._choice.examples import batch_size, can_be_cut, first_examples
from diffprune._core.arguments import check
from diffprune._core.copying import copied
from diffprune._core.door import door
from diffprune._graph import (
    ExampleInputs,
    check_accepts,
)
from diffprune._surgery.compare import (
    Certificate,
    Comparison,
    Outputs,
    arithmetic,
    compare,
    outputs,
    tolerance,
)
from diffprune._surgery.diagnose import (
    Layout,
    Record,
    changed_number,
    first_disagreement,
    record,
)
from diffprune._surgery.double_precision import in_double
from diffprune._surgery.trials import (
    RESIZED,
    Finding,
    Trial,
    certificate,
    differ,
    resized_trial,
    trials,
)
from diffprune.errors import ArgumentError, RemovalError

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class Twins(NamedTuple):
    """An original and a smaller model with other weights than those at hand.

    Attributes:
        original: The original, what is removed zero in it.
        small: What the same removal makes of it.
        whole: Makes the original as it was before anything was zero, if that is known.
        modes: As for `certify`.
    """

    original: nn.Module
    small: nn.Module
    whole: Callable[[], nn.Module] | None = None
    modes: Sequence[bool] = (False, True)


@door
def certify(
    original: nn.Module,
    small: nn.Module,
    inputs: ExampleInputs,
    *,
    kept: Callable[[], Layout] = dict,
    modes: Sequence[bool] = (False, True),
    twins: Callable[[], Twins] | None = None,
) -> Certificate:
    """Run copies of both and compare what they return.

    On the example and on inputs of our own, some of another size where the original
    takes them, in eval and in train mode, in double precision where the original runs
    in it, so that a true difference cannot hide behind rounding. Integers have to be
    equal. What is random in train mode is made equal in both models. A large example is
    compared as it is, and its first rows in all these ways, if they suffice.

    Args:
        original: The masked original.
        small: The model that should compute the same.
        inputs: As for `find_groups`.
        kept: Which elements of each module's outputs remain; asked for only to say
            where the two disagree.
        modes: Whether to compare in train mode (True), in eval mode (False), or both.
        twins: Makes the same two models with other weights, so that nothing depends on
            the weights at hand.

    Raises:
        ArgumentError: If there is no mode to compare in.
        RemovalError: If they differ, or the smaller one does not run.
    """
    if not modes:
        raise ArgumentError(
            "modes is empty, so nothing would be compared. Type `modes=[False]` for "
            "eval mode, or leave it out for both."
        )
    inputs = _telling_rows(original, small, inputs)
    check_accepts(original, inputs, who="the original")
    fine, other = in_double(original, inputs), copied(small)
    other = other.double() if fine.is_double else other
    findings, doubts = list[Finding](), list[str]()
    for training in modes:
        seeds = (1,) if training else (1, 2)
        found = trials(fine.model, fine.inputs, training=training, seeds=seeds)
        runs = [*found.runs]
        if not training and runs:
            runs += resized_trial(fine.model, fine.inputs, runs)
        findings += [examine(fine.model, other, run, kept) for run in runs]
        doubts += found.doubts
    fine_inputs, is_double = fine.inputs, fine.is_double
    del fine, other  # a large model has no room for these and the twins
    if twins is not None:
        more, said = _examine_twins(twins, fine_inputs, kept, is_double=is_double)
        findings += more
        doubts += said
    return certificate(findings, doubts)


_FEW: Final = 3
"""Rows that are enough for statistics over them to say something."""


def _telling_rows(
    original: nn.Module, small: nn.Module, inputs: ExampleInputs
) -> ExampleInputs:
    """The first rows of an example, if the others can show nothing more.

    That is so if no row sees another, and all of the outputs are equal in the precision
    that the model has.
    """
    few = first_examples(inputs, _FEW)
    if batch_size(inputs) <= _FEW or not can_be_cut(inputs, partial(outputs, original)):
        return inputs
    try:
        found = compare(outputs(original, inputs), outputs(small, inputs))
    except Exception:  # noqa: BLE001 - said in full when all that is tried again
        return inputs
    return few if found.is_equal else inputs


def _examine_twins(
    make: Callable[[], Twins],
    inputs: ExampleInputs,
    kept: Callable[[], Layout],
    *,
    is_double: bool,
) -> tuple[list[Finding], list[str]]:
    made = make()
    check("what twins returns", Twins, made)
    findings, doubts, whole = list[Finding](), list[str](), made.whole
    for model in (made.original, made.small) if is_double else ():
        model.double()
    known = list[Trial]()
    for seed, training in enumerate(made.modes, 3):
        found = trials(
            made.original,
            inputs,
            training=training,
            seeds=(seed,),
            weights="scrambled weights",
            like=known,
        )
        known += found.runs
        for run in found.runs[-1:]:
            findings.append(examine(made.original, made.small, run, kept))
        doubts += found.doubts
    del made  # as above
    if whole is not None and not _reacts(whole(), findings, is_double=is_double):
        doubts.append("outputs do not depend on what was removed")
    return findings, doubts


def _reacts(whole: nn.Module, findings: list[Finding], *, is_double: bool) -> bool:
    """Whether a model returns something else on a trial than the masked one did."""
    whole = whole.double() if is_double else whole
    runs = [found.trial for found in findings]
    return any(
        differ(run.returned, outputs(whole, run.inputs, training=run.training))
        for run in runs
    )


@final
class OutputCheck:
    """Whether a model that is changed in place still returns what it returned.

    A sample of what `certify` does, in the model's own precision: on inputs of our own,
    once in every mode, because these can show all that the example can. The model runs
    three times when this is made, and twice for every `certify`.

    Args:
        model: The model, before it is changed.
        inputs: As for `find_groups`.
        modes: As for `certify`.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: ExampleInputs,
        *,
        modes: Sequence[bool] = (False, True),
    ) -> None:
        self._model = model
        self._runs, self._doubts = list[Trial](), list[str]()
        known = list[Trial]()
        for seed, training in enumerate(modes, 1):
            found = trials(model, inputs, training=training, seeds=(seed,), like=known)
            runs = found.runs or trials(model, inputs, training=training, seeds=()).runs
            known += runs
            self._runs += runs[-1:]  # the example, if there is nothing better
            self._doubts += found.doubts
        self._differing: tuple[Trial, Record] | None = None

    def certify(self, model: nn.Module | None = None) -> Certificate:
        """Compare what the model returns now; or what another one does.

        Raises:
            RemovalError: If that is something else, or the model does not run. Undo the
                change, then ask `first_difference` where it happened.
        """
        model = self._model if model is None else model
        findings = [self._examine(model, run) for run in self._runs]
        return certificate(findings, self._doubts)

    def _examine(self, model: nn.Module, run: Trial) -> Finding:
        found = _compare_models(model, run)
        if found.comparison.is_equal or found.doubt:
            return found
        changed = record(model, run.inputs, training=run.training)
        self._differing = run, changed
        raise RemovalError(
            f"the smaller model computes something else{_when(run)}: "
            f"{found.comparison.certificate}."
        )

    def first_difference(self, kept: Layout) -> str:
        """Where the changed model parted from this one; nothing if that is unknown.

        Args:
            kept: Which elements of each module's outputs the changed model has.
        """
        if self._differing is None:
            return ""
        run, changed = self._differing
        before = record(self._model, run.inputs, training=run.training)
        types = arithmetic(self._model, run.inputs, training=run.training)
        allowed = max(map(tolerance, types), default=0.0)
        where = first_disagreement(before, changed, kept, allowed)
        return f" The two part first in `{where}`." if where else ""


def examine(
    original: nn.Module, small: nn.Module, run: Trial, kept: Callable[[], Layout]
) -> Finding:
    """Compare a smaller model with what the original returned on a trial.

    Raises:
        RemovalError: If they differ, or the smaller one does not run.
    """
    found = _compare_models(small, run)
    if found.comparison.is_equal or found.doubt:
        return found
    random = _is_random(original, run, found.comparison.dtype)
    if random and run.training:
        return replace(found, doubt="the model still returns random numbers")
    if random:
        raise RemovalError(
            "the model returns random numbers in eval mode, so no removal can be "
            "verified. Make it deterministic there; `F.dropout(x, p)` for instance "
            "needs `training=self.training`. Nothing was changed."
        )
    raise _refusal(original, small, run, found.comparison, kept())


def _compare_models(small: nn.Module, run: Trial) -> Finding:
    """Compare, if need be with the tolerance of the arithmetic inside the model."""
    expected, inputs, training = run.returned, run.inputs, run.training
    try:
        actual = outputs(small, inputs, training=training)
    except Exception as error:
        raise RemovalError(_failure(small, run, error)) from error
    found = compare(expected, actual)
    if found.is_equal:
        return Finding(run, found)
    types = arithmetic(small, inputs, training=training)
    found = compare(expected, actual, computed_in=types)
    if found.is_equal or not math.isfinite(found.gap.relative):
        return Finding(run, found)
    return _within_rounding(small, run, actual, found, types)


_BLURRED: Final = 1e-3


def _within_rounding(
    small: nn.Module,
    run: Trial,
    actual: Outputs,
    found: Comparison,
    types: Sequence[torch.dtype],
) -> Finding:
    """Allow what rounding may become in this model, on these inputs.

    Statistics of two alike rows, for instance, make much of the last digit. What is
    computed in one type is not excused by the rounding of a coarser one.
    """
    excesses, doubts = [0.0], list[str]()
    for dtype in dict.fromkeys(types):
        shaken = _shaken(small, torch.finfo(dtype).eps)
        returned = outputs(shaken, run.inputs, training=run.training)
        expected, changed, moved = (
            [tensor for tensor, its in zip(many, types, strict=True) if its == dtype]
            for many in (run.returned, actual, returned)
        )
        part = compare(expected, changed, computed_in=[dtype] * len(expected))
        rounding = 30 * compare(changed, moved).gap.relative
        excesses.append(min(part.excess, part.gap.relative / max(rounding, 1e-30)))
        if rounding > _BLURRED and excesses[-1] <= 1 < part.excess:
            doubts.append(f"rounding alone changes outputs by {rounding:.0e}")
    if doubts and max(excesses) <= 1:
        return Finding(run, found, doubts[0])
    return Finding(run, replace(found, excess=max(excesses)))


@torch.no_grad()
def _shaken(model: nn.Module, eps: float) -> nn.Module:
    """A copy of a model whose weights are off by rounding."""
    shaken, draw = copied(model), torch.Generator().manual_seed(0)
    for parameter in shaken.parameters():
        if parameter.is_floating_point():
            noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            parameter.copy_(parameter.double() * (1 + eps * noise.to(parameter.device)))
    return shaken


def _failure(small: nn.Module, run: Trial, error: Exception) -> str:
    running = record(small, run.inputs, training=run.training).running
    where = f"`{running[-1]}`" if running and running[-1] else "the model's own forward"
    return (
        f"the smaller model does not run{_when(run)}, it fails in {where}: "
        f"{type(error).__name__}: {error}\nA width is probably fixed there that "
        "diffprune could not see; leave the layer out with `freeze=[...]`. Nothing was "
        "changed."
    )


def _when(run: Trial) -> str:
    if run.name.startswith(RESIZED):
        return f" on {RESIZED}"
    return " in train mode" if run.training else ""


def _is_random(original: nn.Module, run: Trial, dtype: torch.dtype) -> bool:
    again = outputs(original, run.inputs, seed=1, training=run.training)
    types = [dtype] * len(again)
    return not compare(run.returned, again, computed_in=types).is_equal


_DIVIDES: Final = (
    " The original returns NaN where the weights of removed units are zero: it divides "
    "by them, perhaps by their own length. Write `/ (length + 1e-12)` there."
)


def _refusal(
    original: nn.Module, small: nn.Module, run: Trial, found: Comparison, kept: Layout
) -> RemovalError:
    inputs, training = run.inputs, run.training
    expected = record(original, inputs, training=training)
    actual = record(small, inputs, training=training)
    where = first_disagreement(expected, actual, kept, tolerance(found.dtype))
    number = changed_number(original, small, inputs)
    divides = any(bool(tensor.isnan().any()) for tensor in run.returned)
    return RemovalError(
        f"the smaller model computes something else{_when(run)}"
        f"{f', first in `{where}`' if where else ''}: {found.certificate}."
        f"{f' A width enters the arithmetic: {number}.' if number else ''}"
        f"{_DIVIDES if divides else ''}"
        "\nNothing was changed; leave the layer out with `freeze=[...]`."
    )

"""Remove units from a model: plan, apply, verify."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from diffprune._choice import Refit, refit_
from diffprune._core.arguments import check
from diffprune._core.copying import copied
from diffprune._core.door import door
from diffprune._core.modules import check_has_no_pruner
from diffprune._core.own_modes import own_modes
from diffprune._core.types import Bool, Count, Float
from diffprune._core.user_warnings import warn
from diffprune._graph import (
    ExampleInputs,
    Groups,
    PruneGroup,
    check_accepts,
    find_groups,
)
from diffprune._surgery.apply import apply_plan
from diffprune._surgery.bias_transfer import hand_back_
from diffprune._surgery.change_places import permuted
from diffprune._surgery.compare import combined
from diffprune._surgery.diagnose import layout
from diffprune._surgery.double_precision import cast_like_, in_double
from diffprune._surgery.equivalence import (
    Twins,
    certify,
)
from diffprune._surgery.keep_masks import (
    at_least_one,
    check_same_model,
    checked,
    nothing_left,
)
from diffprune._surgery.masking import mask, mask_
from diffprune._surgery.plan import Plan, plan_removal
from diffprune._surgery.residual_branches import remove_branches_
from diffprune._surgery.scramble import scrambled
from diffprune.errors import ArgumentError

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@dataclass(frozen=True)
class Removal(Generic[ModuleT]):
    """A smaller model, and the plan, with its certificate, that led to it.

    Attributes:
        model: The smaller model.
        plan: What was removed; its certificate is about the model before any refit.
        refit: What was fitted again after that, if anything was.
    """

    model: ModuleT
    plan: Plan
    refit: Refit | None = None


@door
def remove(
    model: ModuleT,
    example_inputs: ExampleInputs,
    *,
    keep: Mapping[str, Bool[Tensor, " units"]],
    round_to: Count = 1,
    min_units: Count = 1,
    scores: Mapping[str, Float[Tensor, " units"]] | None = None,
    refit: Iterable[ExampleInputs] | None = None,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> ModuleT:
    """Return a smaller model of the same class without the units that are not kept.

    The result computes what the original would compute with all parameters of those
    units set to zero. That is checked before anything is returned: on the example
    inputs and on other inputs, in eval and in train mode, with these weights and with
    scrambled ones. A norm that runs over removed units, which `norms="narrow"` allows,
    computes something else; there the check is that units can change places without
    changing an output. If a branch only adds to a residual stream, all its units may be
    removed; then the branch disappears.

    Args:
        model: Left as it is.
        example_inputs: As for `find_groups`.
        keep: For each group to cut, by name, a boolean mask: True for units that stay.
        round_to: Every cut group keeps a multiple of so many units, or all it has.
        min_units: Every cut group keeps at least so many units, or all it has.
        scores: By group, what each unit is worth. If `round_to` or `min_units` asks for
            more units than a mask keeps, those with the highest scores stay as well;
            without scores, the first ones.
        refit: Batches of inputs, each like `example_inputs`. After the removal has been
            checked, the layers that read removed units are fitted, by least squares, to
            return what they returned in the original for these inputs, and the running
            statistics of norms are estimated again. A few hundred examples are enough.
            A warning says if no layer could be fitted, and why.
        options: Passed to `find_groups`.

    Raises:
        UnknownNameError: If a name is not that of a group.
        ArgumentError: If a mask has the wrong length or type, or keeps nothing where
            something has to stay.
        RemovalError: If the smaller model would compute something else.

    Examples:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> keep = {"0": torch.tensor([True, False, True, True, False])}
        >>> remove(model, torch.rand(2, 3), keep=keep)[0]
        Linear(in_features=3, out_features=3, bias=True)
        >>> remove(model, torch.rand(2, 3), keep=keep, round_to=4)[0]
        Linear(in_features=3, out_features=4, bias=True)
    """
    check_has_no_pruner(model)
    groups = find_groups(model, example_inputs, **options)
    wide = checked(
        groups,
        keep,
        round_to=round_to,
        min_units=min_units,
        scores=scores,
        may_vanish=True,
    )
    found = removal(model, example_inputs, groups, keep=wide, refit=refit)
    if found.refit is not None and found.refit.has_failed:
        said = f"no layer was fitted after the removal.\n{found.refit}"
        warn(said)
    return found.model


@door
@own_modes()
def removal(
    model: ModuleT,
    example_inputs: ExampleInputs,
    groups: Groups,
    *,
    keep: Mapping[str, Bool[Tensor, " units"]],
    refit: Iterable[ExampleInputs] | None = None,
) -> Removal[ModuleT]:
    """Like `remove`, with groups found before, and the plan beside the model.

    Args:
        model: Left as it is.
        example_inputs: As for `find_groups`.
        groups: Those of the model, from `find_groups`.
        keep: As for `remove`.
        refit: As for `remove`.

    Returns:
        The smaller model, its plan with a certificate, and what was refitted.

    Raises:
        UnknownNameError: If a name is not that of a group.
        ArgumentError: If the groups are those of another model, or a mask has the wrong
            length or type, or keeps nothing where something has to stay.
        RemovalError: If the smaller model would compute something else.
    """
    check_same_model(model, groups)
    keep = checked(groups, keep, may_vanish=True)
    narrow = {n: k for n, k in keep.items() if not groups[n].is_exact and not k.all()}
    exact = {n: k for n, k in keep.items() if n not in narrow}
    small, plan = _exactly(model, example_inputs, groups, exact)
    if narrow:
        cut = [groups[name] for name in narrow]
        small, plan = _narrowed(model, example_inputs, groups, keep, cut, plan)
    if refit is None:
        return Removal(small, plan)
    batches = _checked_batches(model, refit)
    cut_ones = [groups[name] for name, units in keep.items() if not units.all()]
    read = {place.tensor for group in cut_ones for place in group.axes if place.is_read}
    done = refit_(small, model, plan.tensors, batches, read=read)
    return Removal(small, plan, done)


def _exactly(
    model: ModuleT,
    example_inputs: ExampleInputs,
    groups: Groups,
    keep: Mapping[str, Bool[Tensor, " units"]],
) -> tuple[ModuleT, Plan]:
    """Remove units whose removal changes no output, and certify it."""
    masked = mask(model, groups, keep)
    some = {name: at_least_one(units) for name, units in keep.items()}
    cut, plan = model, plan_removal(groups, keep=some)
    emptied = [groups[name] for name, units in keep.items() if not units.any()]
    moves_in_double = False
    if emptied:
        check_accepts(model, example_inputs)
        fine = in_double(masked, example_inputs)  # biases may move, and must not round
        moves_in_double = fine.is_double
        cut, plan = fine.model, remove_branches_(fine.model, groups, plan, fine.inputs)
        _check_gone(emptied, plan)
    small = apply_plan(cut, plan)
    certificate = certify(
        masked,
        small,
        example_inputs,
        kept=partial(layout, groups, keep),
        twins=partial(_twins, model, groups, keep, plan, in_double=moves_in_double),
    )
    cast_like_(small, model)
    return small, replace(plan, certificate=certificate)


def _narrowed(
    model: ModuleT,
    example_inputs: ExampleInputs,
    groups: Groups,
    keep: Mapping[str, Bool[Tensor, " units"]],
    cut: Sequence[PruneGroup],
    exact: Plan,
) -> tuple[ModuleT, Plan]:
    """Remove units that norms run over as well.

    Norms then take other statistics, so there is nothing that outputs could be compared
    with. Instead, such units change places in the original.

    Args:
        model: Left as it is.
        example_inputs: As for `find_groups`.
        groups: Its groups.
        keep: All units to keep.
        cut: The groups that norms run over.
        exact: What was removed exactly, and certified.
    """
    if exact.stubs:
        raise ArgumentError(
            "a branch cannot disappear in the same call that narrows a norm.\n"
            "Remove the branch first, then narrow what is left."
        )
    found = certify(
        model,
        permuted(model, groups, cut),
        example_inputs,
        twins=partial(_permuted_twins, model, groups, cut),
    )
    plan = plan_removal(groups, keep=keep)
    small = apply_plan(model, plan)
    check_accepts(small, example_inputs, who="the smaller model")
    names = ", ".join(f"`{group.name}`" for group in cut)
    doubt = f"norms take their statistics over what is left of {names}"
    both = [found] if exact.certificate is None else [exact.certificate, found]
    return small, replace(plan, certificate=combined(both, doubt))


def _permuted_twins(
    model: nn.Module, groups: Groups, chosen: Sequence[PruneGroup]
) -> Twins:
    """The same change of places in a model with other weights."""
    other = scrambled(model)
    return Twins(other, permuted(other, groups, chosen))


def _checked_batches(
    model: nn.Module, refit: Iterable[ExampleInputs]
) -> list[ExampleInputs]:
    batches = list(refit)
    for number, batch in enumerate(batches):
        check(f"batch {number} of refit", ExampleInputs, batch)
    for first in batches[:1]:
        check_accepts(model, first, "the inputs in the first batch of refit")
    return batches


def _twins(
    model: nn.Module,
    groups: Groups,
    keep: Mapping[str, Bool[Tensor, " units"]],
    plan: Plan,
    *,
    in_double: bool,
) -> Twins:
    """The same removal from a model with other weights."""

    def whole() -> nn.Module:
        # A branch may have disappeared because of zeros that the model had before.
        other = scrambled(model, keep_zeros=bool(plan.stubs))
        return other.double() if in_double else other

    masked = whole()
    mask_(masked, groups, {groups[name].atom: kept for name, kept in keep.items()})
    cut = masked
    if plan.stubs:
        cut = copied(masked)
        hand_back_(cut, groups.solution)
    return Twins(masked, apply_plan(cut, plan), whole if plan.tensors else None)


def _check_gone(emptied: Sequence[PruneGroup], plan: Plan) -> None:
    for group in emptied:
        if plan.kept[group.name]:
            raise nothing_left(group)

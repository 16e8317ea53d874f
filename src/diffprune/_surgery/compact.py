"""Remove what a model does not use."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import prune

from diffprune._core.copying import copied
from diffprune._core.door import door
from diffprune._core.modules import check_has_no_pruner
from diffprune._core.own_modes import own_modes
from diffprune._core.types import Bool
from diffprune._graph import (
    Atom,
    Axis,
    Contraction,
    ExampleInputs,
    Groups,
    PruneGroup,
    Silencer,
    find_groups,
)
from diffprune._surgery.apply import apply_plan
from diffprune._surgery.constant_folding import (
    Reader,
    fold_into_bias_,
    is_read,
    merge_,
    unread_zeros_,
    watch,
)
from diffprune._surgery.dead_units import Constants, dead_units, silencer_of
from diffprune._surgery.diagnose import layout
from diffprune._surgery.double_precision import cast_like_, in_double
from diffprune._surgery.equivalence import Twins, certify
from diffprune._surgery.keep_masks import at_least_one
from diffprune._surgery.masking import mask_
from diffprune._surgery.plan import Plan, plan_removal
from diffprune._surgery.remove import Removal
from diffprune._surgery.residual_branches import remove_branches_
from diffprune._surgery.scramble import scrambled

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@door
def compact(
    model: ModuleT,
    example_inputs: ExampleInputs,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> ModuleT:
    """Return a smaller model with the same outputs, without what is zero or unread.

    The zeros may come from any method: magnitude pruning, a group lasso, or masks of
    `torch.nn.utils.prune`. If a unit only carries a constant, the constant is added to
    the biases of the layers that read it. Outputs are checked in eval mode, on the
    example inputs and on other inputs. In train mode they may differ, because a batch
    norm treats a constant differently there.

    Args:
        model: Left as it is.
        example_inputs: As for `find_groups`.
        options: Passed to `find_groups`.

    Raises:
        RemovalError: If the smaller model would compute something else.

    Examples:
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> with torch.no_grad():
        ...     model[0].weight[1:3] = 0
        >>> compact(model, torch.rand(2, 3))[0]
        Linear(in_features=3, out_features=3, bias=True)
    """
    check_has_no_pruner(model)
    return compaction(model, example_inputs, **options).model


@door
@own_modes()
def compaction(
    model: ModuleT,
    example_inputs: ExampleInputs,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> Removal[ModuleT]:
    """Like `compact`, with the plan beside the model.

    Args:
        model: Left as it is.
        example_inputs: As for `find_groups`.
        options: Passed to `find_groups`.

    Returns:
        The smaller model, and its plan with a certificate.

    Raises:
        RemovalError: If the smaller model would compute something else.
    """
    plain = _permanent(model)
    groups = find_groups(plain, example_inputs, **options)
    return compaction_of_groups(plain, example_inputs, groups)


def compaction_of_groups(
    plain: ModuleT, example_inputs: ExampleInputs, groups: Groups
) -> Removal[ModuleT]:
    """Like `compaction`, of a model without masks whose groups are known."""
    fine = in_double(plain, example_inputs)  # folding must not round
    dead = _bury_(fine.model, groups, fine.inputs)
    keep = {group.name: at_least_one(~dead[group.atom]) for group in groups}
    plan = plan_removal(groups, keep=keep)
    plan = remove_branches_(fine.model, groups, plan, fine.inputs)
    small = apply_plan(fine.model, plan)
    certificate = certify(
        plain,
        small,
        example_inputs,
        kept=partial(layout, groups, keep),
        modes=(False,),
        twins=partial(_twins, fine.model, plan),
    )
    cast_like_(small, plain)
    return Removal(small, replace(plan, certificate=certificate))


def _twins(buried: nn.Module, plan: Plan) -> Twins:
    """The same cut of a model with other weights, zero where this one is."""
    other = scrambled(buried, keep_zeros=True)
    return Twins(other, apply_plan(other, plan))


def _permanent(model: ModuleT) -> ModuleT:
    """Copy a model, `torch.nn.utils.prune` masks multiplied into the weights."""
    masked = list(_masked(model))
    for module, name in masked:
        # The product of weight and mask, made anew in every forward; copies of it
        # must not drag its gradient history along.
        vars(module)[name] = getattr(module, name).detach()
    plain = copied(model)
    for module, name in list(_masked(plain)):
        prune.remove(module, name)
    return plain


def _masked(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():  # noqa: SLF001 - where prune hides
            if isinstance(hook, prune.BasePruningMethod):
                yield module, str(hook._tensor_name)  # noqa: SLF001


def _bury_(
    model: nn.Module, groups: Groups, inputs: ExampleInputs
) -> dict[Atom, Bool[Tensor, " units"]]:
    """Zero dead units and fold constants until nothing more dies; say what died."""
    dead = {group.atom: torch.zeros(group.size, dtype=torch.bool) for group in groups}
    while True:
        silencer = silencer_of(model, groups.solution)
        now = dead_units(dead, silencer)
        mask_(model, groups, {atom: ~units for atom, units in now.items()})
        changed = any(bool((now[atom] & ~dead[atom]).any()) for atom in dead)
        dead = {atom: dead[atom] | now[atom] for atom in dead}
        changed |= _fold_(model, groups, silencer, dead, inputs)
        if not changed:
            return dead


def _fold_(
    model: nn.Module,
    groups: Groups,
    silencer: Silencer,
    dead: dict[Atom, Bool[Tensor, " units"]],
    inputs: ExampleInputs,
) -> bool:
    """Fold the constants of units that are read but never vary; whether any were."""
    constants = Constants(groups.solution, silencer)
    layers, sums = _own_layers(model), groups.solution.sums()
    constant: dict[Atom, list[int]] = {}
    read: dict[Atom, list[str]] = {}
    axes: dict[str, Axis] = {}
    for group in groups:
        found = _readers(sums.get(group.atom, ()), layers)
        calls = chain.from_iterable(found.values())
        units = _constant(constants, group, calls) & ~dead[group.atom]
        if found and units.any():
            constant[group.atom] = units.nonzero().flatten().tolist()
            read[group.atom] = list(found)
            axes |= {
                name: groups.solution.algebra.resolve(calls[0].axis)
                for name, calls in found.items()
            }
    if not axes:
        return False
    watched = watch(model, axes, inputs)
    folded = [
        _silence_([watched[name] for name in names], atom, constant[atom])
        for atom, names in read.items()
        if all(name in watched for name in names)
    ]
    return any(folded)


def _silence_(readers: list[Reader], atom: Atom, units: list[int]) -> bool:
    """Make nobody read these constant units, by the first way that works."""
    ways = (unread_zeros_, fold_into_bias_, merge_)
    units = [u for u in units if any(is_read(reader, atom, u) for reader in readers)]
    return any(way(readers, atom, units) for way in ways)


def _constant(
    constants: Constants, group: PruneGroup, read: Iterable[Contraction]
) -> Bool[Tensor, " units"]:
    """Units that are constant wherever a layer reads them."""
    constant = torch.ones(group.size, dtype=torch.bool)
    nothing = torch.zeros(group.size, dtype=torch.bool)
    for contraction in read:
        activation, _ = contraction.operands[0]
        constant &= constants.of(activation).get(group.atom, nothing)
    return constant


def _readers(
    sums: Iterable[Contraction], layers: Mapping[str, nn.Module]
) -> dict[str, list[Contraction]]:
    """The layers that sum over a group, with all their calls.

    None unless every one of these sums happens in a plain layer that was called.
    """
    found: dict[str, list[Contraction]] = {}
    for contraction in sums:
        weight, _ = contraction.operands[-1]
        path, _, name = (weight.name or "").rpartition(".")
        layer = layers.get(path)
        if name != "weight" or layer is not layers.get(
            contraction.where.module, weight
        ):
            return {}
        found.setdefault(path, []).append(contraction)
    return found


def _own_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Linear layers and convolutions of one group, that share no tensor with another.

    Under all their names.
    """
    owners = Counter(
        p for module in model.modules() for p in module.parameters(recurse=False)
    )
    return {
        path: module
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.Linear | _ConvNd)
        and getattr(module, "groups", 1) == 1
        and all(owners[p] == 1 for p in module.parameters(recurse=False))
    }

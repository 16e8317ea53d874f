"""The laws of removal: it is invisible, it composes, and it survives a file."""

import copy
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from diffprune._core.arguments import check
from diffprune._core.door import check_given, door
from diffprune._core.types import Amount, Bool, Part, Seed
from diffprune._graph import ExampleInputs, Groups, check_accepts, find_groups
from diffprune._io import load_pruned, save_pruned
from diffprune._surgery import (
    Plan,
    Removal,
    apply_plan,
    mask,
    plan_removal,
    removal,
)
from diffprune._surgery.keep_masks import check_same_model
from diffprune.errors import ArgumentError
from diffprune.testing.outcomes import (
    assert_close,
    assert_same_state,
    is_deterministic,
    other_inputs,
    returned,
    tolerance,
)

Keep = Mapping[str, Bool[Tensor, " units"]]


@door
def random_keep(
    groups: Groups, *, seed: Seed = 0, share: Part = 0.6
) -> dict[str, Bool[Tensor, " units"]]:
    """Draw for each group a mask that keeps some of its units, and at least one.

    Args:
        groups: As `find_groups` returns them.
        seed: Equal seeds give equal masks.
        share: How many units stay, on average.

    Returns:
        By name of the group, True for every unit that stays.
    """
    draw = torch.Generator().manual_seed(seed)
    keep: dict[str, Tensor] = {}
    for group in groups:
        kept = torch.rand(group.size, generator=draw) < share
        kept[torch.randint(group.size, (1,), generator=draw)] = True
        keep[group.name] = kept
    return keep


@door
def check_removal(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    keep: Keep | None = None,
    groups: Groups | None = None,
    seed: Seed = 0,
    atol: Amount | None = None,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> Removal[nn.Module]:
    """Remove units of every group: the model must compute what the masked one does.

    Compares the smaller model with the original in which the removed units' parameters
    are zero: on the example inputs and on others, in eval and in train mode (layers
    that draw random numbers, such as dropout, stay in eval mode). The original must be
    untouched, and the result of its class, with its names.

    Args:
        model: Left as it is. In double precision the check is sharpest.
        example_inputs: As for `find_groups`.
        keep: By name of a group, True for every unit that stays; random by default.
        groups: Those of the model, if you have found them already.
        seed: Of what is removed, and of the other inputs.
        atol: How far an output may differ, or which part of its largest number. By
            default by the precision of the model: 1e-10 in double, 1e-5 in single.
        options: Passed to `find_groups`.

    Returns:
        The smaller model and its plan.

    Raises:
        AssertionError: If a law is broken.
        RemovalError: If the removal itself found a difference.

    Examples:
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).double()
        >>> small = check_removal(model, torch.rand(4, 3).double()).model
        >>> small[0].out_features < 5
        True
    """
    groups = found(groups, model, example_inputs, options)
    keep = random_keep(groups, seed=seed) if keep is None else keep
    before = copy.deepcopy(model.state_dict())
    result = removal(model, example_inputs, groups, keep=keep)
    assert_same_state(model.state_dict(), before, what="the original after a removal")
    _assert_same_kind(result, model)
    masked = mask(model, groups, keep)
    atol = tolerance(model) if atol is None else atol
    for training in (False, True):
        for inputs in (example_inputs, other_inputs(example_inputs, seed=seed)):
            _assert_same_outputs(result.model, masked, inputs, training, atol)
    return result


@door
def check_composition(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    groups: Groups | None = None,
    seed: Seed = 0,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> Plan:
    """Removing nothing is the identity; removing twice is removing the union once.

    Bit for bit, and a plan that went through JSON is the same plan.

    Args:
        model: Left as it is.
        example_inputs: As for `find_groups`.
        groups: Those of the model, if you have found them already.
        seed: Of what is removed.
        options: Passed to `find_groups`.

    Returns:
        The plan of both removals.

    Raises:
        AssertionError: If a law is broken.
    """
    groups = found(groups, model, example_inputs, options)
    whole = {g.name: torch.ones(g.size, dtype=torch.bool) for g in groups}
    _assert(
        plan_removal(groups, keep=whole) == Plan({}, {}, {}), "keeping all is a plan"
    )
    first = random_keep(groups, seed=seed)
    early = plan_removal(groups, keep=first)
    small = apply_plan(model, early)
    again = find_groups(small, example_inputs, **options)
    second = random_keep(again, seed=seed + 1)
    twice = apply_plan(small, plan_removal(again, keep=second))
    once = plan_removal(groups, keep=_union(first, second))
    both = early.then(plan_removal(again, keep=second))
    for what, plan in {"the union": once, "the two plans in one": both}.items():
        at_once = apply_plan(model, plan)
        assert_same_state(at_once.state_dict(), twice.state_dict(), what=what)
        _assert(str(at_once) == str(twice), f"{what}: another model\n{at_once}")
    _assert(Plan.from_json(both.to_json()) == both, "JSON changes a plan")
    return both


@door
def check_round_trip(
    make_model: Callable[[], nn.Module],
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    groups: Groups | None = None,
    seed: Seed = 0,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> nn.Module:
    """Remove units, save, load into a fresh model: the same, bit for bit.

    Args:
        make_model: Makes a fresh model of the original size, its class for instance.
        model: Left as it is.
        example_inputs: As for `find_groups`.
        groups: Those of the model, if you have found them already.
        seed: Of what is removed.
        options: Passed to `find_groups`.

    Returns:
        The model that was loaded.

    Raises:
        AssertionError: If a tensor, an output or the printed model differs.
    """
    groups = found(groups, model, example_inputs, options)
    plan = plan_removal(groups, keep=random_keep(groups, seed=seed))
    small = apply_plan(model, plan)
    with tempfile.TemporaryDirectory() as folder:
        made = make_model()
        check("what make_model returns", nn.Module, made)
        fresh = load_pruned(made, save_pruned(small, folder))
    assert_same_state(fresh.state_dict(), small.state_dict(), what="the loaded model")
    _assert(str(fresh) == str(small), f"the loaded model is another one:\n{fresh}")
    expected, actual = returned(small, example_inputs), returned(fresh, example_inputs)
    assert_close(actual, expected, what="outputs of the loaded model", atol=0.0)
    return fresh


def found(
    groups: Groups | None,
    model: nn.Module,
    example_inputs: ExampleInputs,
    options: Mapping[str, Any],
) -> Groups:
    """The groups that were given, or else those of the model."""
    if groups is None:
        return find_groups(model, example_inputs, **options)
    check_given(find_groups, options)
    if options:
        name = next(iter(options))
        raise ArgumentError(
            f"`{name}=` would change nothing, because the groups are given: leave out "
            f"`groups=`, or find them with `{name}=`."
        )
    check_same_model(model, groups)
    check_accepts(model, example_inputs)
    return groups


def _assert_same_kind(result: Removal[nn.Module], model: nn.Module) -> None:
    small = result.model
    _assert(type(small) is type(model), f"the class became {type(small).__name__}")
    _assert(small.training == model.training, "the mode of training changed")
    gone = tuple(f"{path}." for path in result.plan.stubs)
    names = [name for name in model.state_dict() if not name.startswith(gone)]
    _assert(list(small.state_dict()) == names, "the names of the tensors changed")


def _assert_same_outputs(
    small: nn.Module,
    masked: nn.Module,
    inputs: ExampleInputs,
    training: bool,  # noqa: FBT001 - private, named where it is made
    atol: float,
) -> None:
    expected = returned(masked, inputs, training=training)
    actual = returned(small, inputs, training=training)
    mode = "train" if training else "eval"
    what = f"outputs of the smaller model in {mode} mode"
    try:
        assert_close(actual, expected, what=what, atol=atol)
    except AssertionError:
        # A forward that draws random numbers itself draws more of them when wider.
        if not training or is_deterministic(masked, inputs, training=True):
            raise


def _union(first: Keep, second: Keep) -> dict[str, Tensor]:
    """What stays of the original when first and then second are kept."""
    union = {name: kept.clone() for name, kept in first.items()}
    for name, kept in second.items():
        union[name][first[name]] = kept
    return union


def _assert(truth: bool, otherwise: str) -> None:  # noqa: FBT001 - like assert
    if not truth:
        raise AssertionError(otherwise)

"""The law of groups: units may change places in all their tensors; outputs stay."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from diffprune._core.door import door
from diffprune._core.types import Amount, Seed
from diffprune._graph import ExampleInputs, Groups, Op, Rule, find_groups
from diffprune._surgery.change_places import permuted
from diffprune.testing.outcomes import assert_close, returned, tolerance
from diffprune.testing.removal_laws import check_removal, found


@door
def check_groups(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    groups: Groups | None = None,
    seed: Seed = 0,
    atol: Amount | None = None,
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> Groups:
    """Permute the units of every group in all their tensors; the outputs must stay.

    The cheapest complete test of a group: it fails if a tensor is missing from it, has
    the wrong dimension, or holds its units in another order.

    Args:
        model: Left as it is. In double precision the check is sharpest.
        example_inputs: As for `find_groups`.
        groups: Those of the model, if you have found them already.
        seed: Of the permutations.
        atol: How far an output may differ, or which part of its largest number. By
            default by the precision of the model: 1e-10 in double, 1e-5 in single.
        options: Passed to `find_groups`.

    Returns:
        The groups, so that a test can ask how many there are: a model without groups
        passes every law.

    Raises:
        AssertionError: If the outputs change.

    Examples:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> len(check_groups(model, torch.rand(4, 3)))
        1
    """
    groups = found(groups, model, example_inputs, options)
    expected = returned(model, example_inputs)
    shuffled = permuted(model, groups, groups, seed)
    what = "outputs after units changed places"
    atol = tolerance(model) if atol is None else atol
    assert_close(returned(shuffled, example_inputs), expected, what=what, atol=atol)
    names = [group.name for group in groups]
    if len(set(names)) < len(names) or len({g.atom for g in groups}) < len(names):
        raise AssertionError(f"two groups have one name, or the same units: {names}")
    return groups


@door
def check_rule(
    rules: Mapping[Op, Rule],
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    seed: Seed = 0,
) -> Groups:
    """Check that rules free units of a model, and that what they free can go.

    Finds the groups with and without the rules, permutes units and removes some at
    random, on the example inputs and on others, in eval and in train mode.

    Args:
        rules: As `rules=` of `find_groups`.
        model: A small model with the ops between two layers; left as it is.
        example_inputs: As for `find_groups`.
        seed: Of what is permuted and removed.

    Returns:
        The groups that are found with the rules.

    Raises:
        AssertionError: If the rules change nothing about this model, or if outputs
            change when units change places.
        RemovalError: If a removal changes the outputs.

    Examples:
        >>> import torch
        >>> def cummax(call, x, dim):
        ...     call.freeze(x.axes[dim], "its elements depend on their order")
        ...     return x.axes
        >>> class Peaks(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 2)
        ...     def forward(self, signal):
        ...         return self.down(torch.cummax(self.up(signal), dim=1).values)
        >>> rules = {torch.ops.aten.cummax: cummax}
        >>> [group.name for group in check_rule(rules, Peaks(), torch.rand(2, 5, 4))]
        ['up']
    """
    without = find_groups(model, example_inputs)
    groups = find_groups(model, example_inputs, rules=rules)
    if str(groups) == str(without):
        raise AssertionError(
            "with and without the rules the groups are the same: does the model use "
            f"{', '.join(map(str, rules))}?\n{groups}"
        )
    check_groups(model, example_inputs, groups=groups, seed=seed)
    check_removal(model, example_inputs, groups=groups, seed=seed)
    return groups

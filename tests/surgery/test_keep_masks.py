import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from diffprune._graph import find_groups
from diffprune._surgery.keep_masks import at_least_one, checked, widen
from diffprune._surgery.plan import plan_removal
from diffprune.errors import ArgumentError, UnknownNameError

BOOLEANS = st.lists(st.booleans(), min_size=1, max_size=20).map(torch.tensor)


@pytest.fixture(scope="module")
def groups():
    """One group of 12 units, called `0`."""
    model = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 2))
    return find_groups(model, torch.rand(2, 3))


def first(n):
    return torch.arange(12) < n


@given(BOOLEANS, st.integers(0, 25))
def test_widening_keeps_what_was_kept_and_has_the_width(mask, width):
    wide = widen(mask, width, torch.zeros(len(mask)))
    assert (wide | ~mask).all()
    assert wide.sum() == max(int(mask.sum()), min(width, len(mask)))


def test_without_scores_the_first_removed_units_stay():
    mask = torch.tensor([False, True, False, False, True])
    wide = widen(mask, 3, torch.zeros(5))
    assert wide.tolist() == [True, True, False, False, True]


def test_with_scores_the_best_removed_units_stay(groups):
    scores = {"0": torch.arange(12.0)}
    wide = checked(groups, {"0": first(1)}, min_units=3, scores=scores)["0"]
    assert wide.nonzero().flatten().tolist() == [0, 10, 11]


@pytest.mark.parametrize(
    ("kept", "round_to", "min_units", "width"),
    [
        (5, 1, 1, 5),
        (5, 4, 1, 8),
        (8, 4, 1, 8),
        (9, 8, 1, 12),  # 16 would be more than there are
        (1, 1, 2, 2),
        (3, 2, 8, 8),
        (1, 1, 99, 12),
        (1, 4, 6, 8),  # both at once
    ],
)
def test_widths_are_rounded_up_within_the_group(
    groups, kept, round_to, min_units, width
):
    masks = checked(groups, {"0": first(kept)}, round_to=round_to, min_units=min_units)
    assert masks["0"].sum() == width


def test_masks_given_are_left_as_they_are(groups):
    mask = first(1)
    checked(groups, {"0": mask}, round_to=8)
    assert torch.equal(mask, first(1))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(11, dtype=torch.bool), r"vector of 12 units.*shape \(11,\)"),
        (torch.ones(12), r"boolean vector.*torch\.float32"),
        (torch.ones(12, dtype=torch.uint8), r"boolean vector.*torch\.uint8"),
        (torch.ones(1, 12, dtype=torch.bool), r"shape \(1, 12\)"),
        (torch.zeros(12, dtype=torch.bool), "keeps none of its 12 units"),
        (
            torch.ones(12, dtype=torch.bool, device="meta"),
            r"is on meta, where nothing of the model is\. Make it on cpu\.",
        ),
        ([True] * 12, "got list, not a tensor"),
        (None, "got NoneType, not a tensor"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(groups, mask, message):
    with pytest.raises(ArgumentError, match=f"(?s)mask for `0`.*{message}"):
        checked(groups, {"0": mask})


def test_an_unknown_group_is_refused_with_those_there_are(groups):
    with pytest.raises(UnknownNameError, match="no group `7`; the groups are `0`"):
        checked(groups, {"7": first(3)})


def test_scores_without_a_mask_are_refused(groups):
    with pytest.raises(UnknownNameError, match="`1` has scores but no mask"):
        checked(groups, {"0": first(3)}, scores={"1": torch.ones(12)})


def test_scores_of_another_length_are_refused(groups):
    with pytest.raises(ArgumentError, match="scores for `0` must be a vector of 12"):
        checked(groups, {"0": first(3)}, scores={"0": torch.ones(11)})


@pytest.mark.parametrize(
    ("options", "width"), [({}, 0), ({"round_to": 8}, 0), ({"min_units": 2}, 2)]
)
def test_a_group_that_may_vanish_need_not(groups, options, width):
    masks = checked(groups, {"0": first(0)}, may_vanish=True, **options)
    assert masks["0"].sum() == width


def test_one_unit_is_kept_where_there_would_be_none():
    assert at_least_one(torch.zeros(3, dtype=torch.bool)).tolist() == [
        True,
        False,
        False,
    ]
    mask = torch.tensor([False, True])
    assert at_least_one(mask) is mask


@pytest.mark.parametrize("name", ["round_to", "min_units"])
def test_counts_below_one_are_refused(groups, name):
    with pytest.raises(ArgumentError, match=f"{name} must be a whole .* 1, got 0"):
        plan_removal(groups, keep={"0": first(3)}, **{name: 0})

"""The search for strengths: what a trial is, and which factor is tried next."""

from dataclasses import replace

import pytest
import torch

from diffprune.lab.image_batches import Examples, Split
from paper import calibration
from paper.calibration import (
    AIMS,
    Result,
    chosen,
    is_hopeless,
    next_factor,
    search,
    share_of,
    trial_recipe,
)
from paper.recipe_parts import scaled
from paper.records import RESULTS, read_results
from paper.tables.wide_resnet_table import WRN_10_2
from paper.wide_resnet_recipes import FADED, FADES


def trial(factor, *shares, aim="low"):
    return Result(
        aim=aim, factor=factor, widths={"a": 3}, shares=shares, validation_error=30.0
    )


@pytest.mark.parametrize("aim", AIMS.values(), ids=AIMS)
def test_a_trial_has_the_schedule_of_its_run(aim):
    run, part = aim.recipe(0), trial_recipe(aim, 2.0)
    same = range(part.epochs)
    assert [part.lr_factor(e) for e in same] == [run.lr_factor(e) for e in same]
    assert part.epochs == FADED * run.epochs
    harder = 2 * calibration.SHORTER
    assert part.strength == {name: harder * s for name, s in aim.papers.items()}


@pytest.mark.usefixtures("images")
def test_strengths_of_a_trial_are_those_of_its_run():
    recipe = trial_recipe(AIMS["high"], 2.0)
    task = calibration.trial_task(recipe)
    strength = task.pruner.keywords["strength"]
    assert strength(FADES / FADED) == recipe.strength
    assert set(strength(1.0).values()) == {0.0}
    half = (FADES + FADED) / 2 / FADED
    assert strength(half) == pytest.approx(
        {name: s / 2 for name, s in recipe.strength.items()}
    )


@pytest.mark.usefixtures("images")
def test_held_out_images_take_the_place_of_the_test():
    task = calibration.trial_task(trial_recipe(AIMS["low"], 1.0))
    labels = torch.cat([targets for _, targets in task.test])
    assert labels.tolist() == [7] * (20 // calibration.SHORTER)
    assert task.validation is None


@pytest.fixture
def images(monkeypatch):
    """A few images: of label 1 to learn from, 7 held out, 9 for the test."""

    def few(label):
        pixels = torch.randint(0, 256, (20, 3, 32, 32), dtype=torch.uint8)
        return Examples(pixels, torch.full((20,), label))

    data = Split(few(1), few(7), few(9))
    monkeypatch.setattr(calibration, "load_cifar10", lambda **_: data)


@pytest.mark.usefixtures("images")
def test_a_run_says_what_is_left_and_how_wrong_it_is(monkeypatch):
    whole = trial_recipe(AIMS["low"], 1.0)
    short = replace(whole, epochs=1)
    monkeypatch.setattr(calibration, "trial_recipe", lambda *_: short)
    found = calibration.run("low", 1.0)
    assert (found.aim, found.factor, len(found.widths)) == ("low", 1.0, 6)
    assert len(found.shares) == 1
    assert 0 < found.share <= 1
    assert 0 <= found.validation_error <= 100


@pytest.mark.parametrize(
    ("number", "share", "hopeless"),
    [
        (1, 1.0, False),
        (2, 0.68, True),
        (3, 0.70, False),
        (5, 0.9, False),
        (6, 0.9, True),
        (6, 0.8, False),
    ],
)
def test_a_trial_is_given_up_when_it_cannot_end_well(
    done, number, share, hopeless, monkeypatch
):
    aim = AIMS["low"]
    monkeypatch.setattr(calibration, "share_of", lambda _: share)
    epoch = replace(done.epochs[0], number=number)
    assert is_hopeless(aim, trial_recipe(aim, 1.0), epoch) == hopeless


def test_a_share_is_that_of_open_units(done):
    widths = (32, 32, 64, 64, 128, 128)
    whole, half = (
        replace(done.epochs[0], raw=dict(enumerate(found)), macs=WRN_10_2.macs)
        for found in (widths, [n // 2 for n in widths])
    )
    assert share_of(whole) == 1
    assert 0.25 < share_of(half) < 0.35


@pytest.mark.usefixtures("images")
def test_what_was_given_up_is_a_result_as_well(monkeypatch):
    monkeypatch.setattr(calibration, "is_hopeless", lambda *_: True)
    assert len(calibration.run("low", 1.0).shares) == 1


@pytest.mark.parametrize("name", AIMS)
@pytest.mark.parametrize("share", [0.71, 0.42])
@pytest.mark.parametrize("rate", [0.05, 0.2, 1.0])
def test_a_smooth_curve_is_soon_met(name, share, rate):
    """Shares fall with the whole push, until a trial is given up."""
    aim = replace(AIMS[name], share=share)
    recipe = trial_recipe(aim, 1.0)

    def attempt(name, factor):
        pushed, shares = 0.0, []
        for epoch in range(recipe.epochs):
            pushed += factor * calibration._push(recipe, epoch)
            shares.append(1 / (1 + (rate * pushed) ** 2))
            if shares[-1] < share - calibration.NEAR:
                break
        return trial(factor, *shares, aim=name)

    *_, last = search(name, aim, attempt)
    assert last.share == pytest.approx(share, abs=calibration.NEAR)


def test_the_search_ends_even_if_nothing_changes():
    tried = [*search("low", AIMS["low"], lambda _, factor: trial(factor, 1.0))]
    assert len(tried) == calibration.MOST_TRIALS
    factors = [result.factor for result in tried]
    assert factors == sorted(set(factors))


def test_the_next_factor_goes_on_where_all_are_too_weak_or_too_strong():
    assert next_factor([trial(1.0, 0.9), trial(2.0, 0.8)], AIMS["low"]) > 2.0
    assert next_factor([trial(2.0, 0.6), trial(1.0, 0.6)], AIMS["low"]) < 1.0


def test_the_next_factor_is_between_trials_on_both_sides():
    assert 1.0 < next_factor([trial(1.0, 0.9), trial(2.0, 0.7)], AIMS["low"]) < 2.0
    assert 1.0 < next_factor([trial(1.0, 0.72), trial(2.0, 0.1)], AIMS["low"]) < 2.0


def test_the_nearest_is_taken_whatever_its_error():
    found = [trial(1.0, 0.9), replace(trial(2.0, 0.7), validation_error=99.0)]
    assert chosen(found, "low") is found[1]


def test_a_trial_that_was_given_up_is_not_taken_if_another_was_not():
    whole = [0.9] * trial_recipe(AIMS["low"], 1.0).epochs
    found = [trial(1.0, *whole), trial(2.0, 0.71)]
    assert chosen(found, "low") is found[0]


@pytest.mark.parametrize("name", AIMS)
def test_the_recipes_have_the_factor_that_is_on_record(name):
    found = read_results(RESULTS / "wrn/calibration.json", "calibrate", Result)
    aim = AIMS[name]
    taken = chosen(found, name)
    assert aim.recipe(0).strength == scaled(aim.papers, taken.factor)


def test_every_trial_is_shown(lines_of):
    found = [trial(1.0, 0.9), trial(2.0, 0.8, 0.7), trial(3.0, 0.5, aim="high")]
    lines = [line for line in lines_of(calibration.table(found)) if "30.00" in line]
    assert ["yes" in line for line in lines] == [False, True, True]
    assert "70.0%" in lines[1]

from dataclasses import replace

import pytest
import torch

from diffprune.lab import read_run, train
from diffprune.lab.image_batches import Examples, Split
from diffprune.lab.training.task import gate_of
from paper import wide_resnet_recipes
from paper.fading_strengths import fading_task
from paper.models.wide_resnet import WideResNet
from paper.recipe_parts import papers_gate
from paper.wide_resnet_recipes import (
    FADED,
    FADES,
    few_and_small,
    small_wrn_dense,
    small_wrn_high,
    small_wrn_low,
    spare_wrn_cifar10,
    spare_wrn_dense,
    spare_wrn_high_budget,
    spare_wrn_low_budget,
    wide_resnet_task,
    wide_wrn_dense,
    wide_wrn_high,
    wide_wrn_high_budget,
    wide_wrn_low,
    wide_wrn_low_budget,
    wide_wrn_task,
    wider_wrn_dense,
    wider_wrn_high_budget,
    wider_wrn_low_budget,
    wrn_high,
    wrn_low,
)

WIDE_MACS = 11_121_920
"""Of WRN-10-2 for an image of 16 pixels a side."""


@pytest.fixture(scope="module")
def images():
    pixels = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
    few = Examples(pixels, torch.arange(8))
    return Split(few, None, few)


@pytest.mark.parametrize("make_recipe", [wrn_low, wrn_high])
def test_the_recipes_of_wide_resnets_train_for_two_steps(images, make_recipe, tmp_path):
    recipe = replace(make_recipe(), epochs=1, batch_size=4, pruner={"remove_every": 2})

    def task(recipe):
        return wide_resnet_task(WideResNet(10, 1, gate_of(recipe)), images, recipe)

    train(task, recipe, out=tmp_path)
    (epoch,) = read_run(tmp_path).epochs
    assert len(epoch.raw) == 6
    assert epoch.loss > 0


@pytest.mark.slow
@pytest.mark.parametrize("make_recipe", [wrn_low, wrn_high])
def test_the_paper_network_trains_for_two_steps(images, make_recipe, tmp_path):
    """WRN-28-10 in full, on four images at a time."""
    recipe = replace(make_recipe(), epochs=1, batch_size=4, pruner={"remove_every": 1})

    def task(recipe):
        return wide_resnet_task(WideResNet(28, 10, gate_of(recipe)), images, recipe)

    train(task, recipe, out=tmp_path)
    (epoch,) = read_run(tmp_path).epochs
    assert len(epoch.raw) == 24
    assert epoch.steps == 2
    assert 0 < epoch.macs <= 5_243_328_768


@pytest.mark.parametrize("make_recipe", [small_wrn_low, small_wrn_high])
def test_the_small_recipes_follow_the_schedule_of_the_paper(make_recipe):
    small, large = make_recipe(2), wrn_low(2)
    for epoch in range(30):
        assert small.lr_factor(epoch) == large.lr_factor(epoch * 200 // 30)
    assert (small.batch_size, small.weight_decay) == (120, 5e-4)


def test_low_high_and_dense_differ_in_strength_alone():
    low, high, dense = small_wrn_low(1), small_wrn_high(1), small_wrn_dense(1)
    assert replace(high, name=low.name, strength=low.strength) == low
    assert replace(dense, name=low.name, strength=low.strength) == low
    assert dense.strength is None
    assert all(high.strength[group] >= low.strength[group] for group in low.strength)


def test_wide_resnets_are_trained_as_published():
    low, high = wrn_low(3), wrn_high(3)
    assert [low.lr_factor(e) for e in (0, 59, 60, 120, 160)] == pytest.approx(
        [1, 1, 0.2, 0.04, 0.008]
    )
    assert (low.batch_size, low.lr, low.weight_decay, low.seed) == (120, 0.1, 5e-4, 3)
    assert list(low.strength.values()) == [1e-5, 1e-5, 5e-5]
    assert list(high.strength.values()) == [2e-5, 7e-5, 3e-4]
    assert low.gate == {}


def test_without_strength_there_are_no_gates():
    dense = replace(wrn_low(), strength=None)
    assert not list(gate_of(dense)(5).parameters())


@pytest.mark.parametrize("make_recipe", [wide_wrn_low, wide_wrn_high])
def test_the_push_to_close_is_gone_before_the_end(images, make_recipe, tmp_path):
    recipe = replace(make_recipe(), epochs=2, batch_size=4)
    seen = []

    def task(recipe):
        model = WideResNet(10, 2, papers_gate(recipe))
        made = faded_task(wide_resnet_task(model, images, recipe), recipe)

        def pruner(model, examples):
            seen.append(made.pruner(model, examples))
            return seen[0]

        return replace(made, pruner=pruner)

    pushes = []
    train(task, recipe, out=tmp_path, on_epoch=lambda _: pushes.append(push(seen[0])))
    whole = push(fresh(images, recipe))
    assert 0 < pushes[0] < whole
    assert pushes[1] == 0
    last_fall = recipe.decay_after[-1] / make_recipe().epochs
    assert last_fall > FADED


def faded_task(task, recipe):
    return fading_task(task, recipe, start=FADES, end=FADED)


def fresh(images, recipe):
    model = WideResNet(10, 2, papers_gate(recipe))
    made = faded_task(wide_resnet_task(model, images, recipe), recipe)
    return made.pruner(model, images.test.images[:2].float())


def push(pruner):
    return pruner.penalty().item()


def test_a_dense_recipe_has_nothing_that_fades(images):
    recipe = wide_wrn_dense()
    task = wide_resnet_task(WideResNet(10, 2), images, recipe)
    assert faded_task(task, recipe) is task


@pytest.mark.parametrize("make_recipe", [wide_wrn_low_budget, wide_wrn_high_budget])
def test_a_budget_gets_the_share_of_the_paper(images, make_recipe, tmp_path):
    recipe = replace(make_recipe(), epochs=4, batch_size=2)

    def task(recipe):
        model = WideResNet(10, 2, papers_gate(recipe))
        small = few_and_small(images)
        return faded_task(wide_resnet_task(model, small, recipe), recipe)

    train(task, recipe, out=tmp_path)
    share = read_run(tmp_path).outcome.macs / WIDE_MACS
    assert 0.8 * recipe.budget["macs"] < share <= recipe.budget["macs"]


def test_runs_of_the_wide_network_differ_in_what_closes_gates_alone():
    dense = wide_wrn_dense(1)
    for make in (
        wide_wrn_low, wide_wrn_high, wide_wrn_low_budget, wide_wrn_high_budget,
    ):  # fmt: skip
        recipe = make(1)
        same = replace(recipe, name=dense.name, strength=None, budget=None)
        assert (same, recipe.is_dense) == (dense, False)


def test_the_wider_network_is_trained_as_the_wide_one_is(images):
    pairs = {
        wider_wrn_dense: wide_wrn_dense,
        wider_wrn_low_budget: wide_wrn_low_budget,
        wider_wrn_high_budget: wide_wrn_high_budget,
    }
    for wider, wide in pairs.items():
        assert replace(wider(1), name=wide(1).name) == wide(1)
    task = wide_wrn_task(few_and_small(images), wider_wrn_dense(), widen=4)
    assert task.model.group3[0].conv1.out_channels == 4 * 64


def test_with_few_images_only_their_number_and_the_epochs_are_others(monkeypatch):
    pairs = {
        spare_wrn_dense: wider_wrn_dense,
        spare_wrn_low_budget: wider_wrn_low_budget,
        spare_wrn_high_budget: wider_wrn_high_budget,
    }
    for spare, wider in pairs.items():
        few, many = spare(1), wider(1)
        same = replace(
            few, name=many.name, epochs=many.epochs, decay_after=many.decay_after
        )
        assert same == many
        shares = [after / few.epochs for after in few.decay_after]
        assert shares == [after / many.epochs for after in many.decay_after]
    pixels = torch.zeros(5_001, 3, 4, 4, dtype=torch.uint8)
    split = Split(Examples(pixels, torch.arange(5_001)), None, Examples(pixels, pixels))
    monkeypatch.setattr(wide_resnet_recipes, "load_cifar10", lambda: split)
    task = spare_wrn_cifar10(spare_wrn_dense())
    assert len(task.train.examples) == 5_000
    assert task.model.group3[0].conv1.out_channels == 4 * 64


def test_few_images_are_the_first_ones_at_half_the_side(images):
    found = few_and_small(replace(images, validation=images.train), count=3)
    assert found.train.images.shape == (3, 3, 16, 16)
    assert found.train.labels.tolist() == [0, 1, 2]
    assert len(found.validation) == len(found.test) == 8
    assert found.test.images.shape[-1] == 16

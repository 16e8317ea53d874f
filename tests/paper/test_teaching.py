"""A teacher, what it says, and when others begin to listen."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, softmax

from diffprune.errors import ArgumentError
from diffprune.gates import named_gates
from diffprune.lab import Recipe, read_run, train
from diffprune.lab.image_batches import Batches, Examples, Split
from paper import lenet5_recipes, teaching
from paper.lenet5_recipes import (
    lenet5_mnist_held,
    lenet5_mnist_taught,
    table1_sigmoid_held,
    table1_sigmoid_taught,
    table1_softmax_held,
    table1_softmax_taught,
)
from paper.wide_resnet_recipes import wider_wrn_low_budget, wider_wrn_low_taught


def some(count):
    labels = torch.arange(count) % 10
    generator = torch.Generator().manual_seed(count)
    images = torch.rand(count, 1, 28, 28, generator=generator)
    return Examples(images + labels.view(-1, 1, 1, 1) / 10, labels)


@pytest.fixture
def few(monkeypatch, tmp_path):
    """A few images, a teacher of one epoch, and a folder of its own."""
    data, make = Split(some(64), None, some(20)), teaching.teacher_recipe
    monkeypatch.setattr(teaching, "load_mnist", lambda: data)
    monkeypatch.setattr(lenet5_recipes, "load_mnist", lambda: data)
    monkeypatch.setattr(teaching, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(
        teaching, "teacher_recipe", lambda **names: replace(make(**names), epochs=1)
    )
    return data


@pytest.fixture
def recipe():
    """Two epochs of closing, then two with gates that stay."""
    whole = table1_sigmoid_taught(1)
    return replace(whole, epochs=4, decay_after=(2,), batch_size=16, lr=1e-3)


def test_a_taught_loss_is_that_of_labels_and_of_softened_scores():
    outputs, scores = torch.randn(2, 7, 10, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(7)
    targets = torch.cat([labels.unsqueeze(1).to(scores), scores.detach()], dim=1)
    said, heard = softmax(scores.detach() / 4, 1), softmax(outputs / 4, 1)
    apart = (said * (said / heard).log()).sum(1).mean()
    expected = 0.1 * cross_entropy(outputs, labels) + 0.9 * 16 * apart
    assert torch.allclose(teaching.loss(outputs, targets), expected)
    assert torch.equal(teaching.loss(outputs, labels), cross_entropy(outputs, labels))
    wrong = teaching.error(outputs, targets)
    assert torch.equal(wrong, teaching.error(outputs, labels))


@pytest.mark.usefixtures("few")
def test_one_gate_that_learns_keeps_the_teacher_away(recipe):
    task = lenet5_mnist_taught(recipe)
    images, targets = next(iter(task.train))
    outputs = task.model(images)
    first, *others = named_gates(task.model).values()
    for gate in others:
        gate.requires_grad_(requires_grad=False)
    labels = targets[:, 0].long()
    assert torch.equal(task.loss(outputs, targets), cross_entropy(outputs, labels))
    first.requires_grad_(requires_grad=False)
    assert torch.equal(task.loss(outputs, targets), teaching.loss(outputs, targets))


@pytest.mark.usefixtures("few")
def test_the_same_units_close_with_a_teacher(recipe, tmp_path):
    held = replace(recipe, name="held")
    train(lenet5_mnist_held, held, out=tmp_path / "held")
    train(lenet5_mnist_taught, recipe, out=tmp_path / "taught")
    without, taught = (read_run(tmp_path / name) for name in ("held", "taught"))
    for epoch, same in zip(without.epochs, taught.epochs, strict=True):
        assert epoch.raw == same.raw
    losses = [
        (epoch.loss, same.loss)
        for epoch, same in zip(without.epochs, taught.epochs, strict=True)
    ]
    assert all(one == other for one, other in losses[:2])
    assert all(one != other for one, other in losses[2:])


@pytest.mark.usefixtures("few")
def test_who_was_interrupted_is_taught_as_before(recipe, tmp_path):
    def stop(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(lenet5_mnist_taught, recipe, out=whole)
    with pytest.raises(KeyboardInterrupt):
        train(lenet5_mnist_taught, recipe, out=parts, on_epoch=stop)
    train(lenet5_mnist_taught, recipe, out=parts)
    one, other = ([e.loss for e in read_run(out).epochs] for out in (whole, parts))
    assert one == other


def test_a_teacher_is_trained_once(few, recipe, capsys):
    first = lenet5_mnist_taught(recipe)
    assert "frontier-teacher-normed 0 1" in capsys.readouterr().err
    second = lenet5_mnist_taught(recipe)
    assert not capsys.readouterr().err
    one, other = (task.train.examples.labels for task in (first, second))
    assert torch.equal(one, other)
    assert torch.equal(one[:, 0].long(), few.train.labels)


@pytest.mark.usefixtures("few")
def test_a_teacher_of_another_length_is_not_heard(recipe, monkeypatch):
    """As after `paper train frontier-teacher-normed --epochs 1`."""
    lenet5_mnist_taught(recipe)
    make = teaching.teacher_recipe
    monkeypatch.setattr(
        teaching, "teacher_recipe", lambda **names: replace(make(**names), epochs=2)
    )
    with pytest.raises(ArgumentError, match="its `epochs` is 1, and 2 is asked for"):
        lenet5_mnist_taught(recipe)


def test_recipes_with_a_teacher_are_those_of_held_gates():
    for taught, held in (
        (table1_sigmoid_taught(2), table1_sigmoid_held(2)),
        (table1_softmax_taught(2), table1_softmax_held(2)),
    ):
        assert replace(taught, name=held.name) == held


def test_the_recipe_of_a_wide_resnet_with_a_teacher_is_that_of_a_budget():
    taught, alone = wider_wrn_low_taught(1), wider_wrn_low_budget(1)
    assert replace(taught, name=alone.name) == alone


def shifted(images):
    return images + torch.rand(len(images), 1, 1, 1)


def test_a_teacher_is_asked_about_the_very_images_that_others_learn_from():
    batches = Batches(some(12), 5, shuffle=True, transform=shifted)
    teacher = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(784, 10))
    torch.manual_seed(3)
    alone = [*batches]
    torch.manual_seed(3)
    heard = [*teaching.Heard(batches, teacher)]
    assert len(heard) == len(teaching.Heard(batches, teacher)) == 3
    for (images, labels), (same, targets) in zip(alone, heard, strict=True):
        assert torch.equal(images, same)
        assert torch.equal(targets[:, 0].long(), labels)
        assert torch.equal(targets[:, 1:], teacher(images))
        assert not targets.requires_grad


SHORT = Recipe(name="pupil", epochs=3, batch_size=8, lr=1e-2, strength=1e-2)


@pytest.fixture
def pupil(monkeypatch, tmp_path, toy):
    """A task whose teacher is the same network, trained for three epochs."""
    monkeypatch.setattr(teaching, "RUNS", tmp_path / "runs")
    how = replace(SHORT, name="teacher", strength=None)
    return lambda recipe: teaching.taught(toy(recipe), toy, how)


def test_a_teacher_that_says_nothing_new_changes_no_random_number(
    pupil, toy, monkeypatch, tmp_path
):
    monkeypatch.setattr(teaching, "TAUGHT", 0.0)
    for name, task in (("alone", toy), ("taught", pupil)):
        train(task, SHORT, out=tmp_path / name)
    alone, taught = (read_run(tmp_path / name).epochs for name in ("alone", "taught"))
    assert [epoch.loss for epoch in alone] == [epoch.loss for epoch in taught]


def test_who_hears_a_teacher_from_the_first_step_on_learns_otherwise(
    pupil, toy, tmp_path, capsys
):
    train(toy, SHORT, out=tmp_path / "alone")
    train(pupil, SHORT, out=tmp_path / "taught")
    assert "teacher 0 3" in capsys.readouterr().err
    alone, taught = (read_run(tmp_path / name).epochs for name in ("alone", "taught"))
    assert all(a.loss != t.loss for a, t in zip(alone, taught, strict=True))
    pupil(SHORT)
    assert not capsys.readouterr().err

from dataclasses import replace

import pytest
import torch
from torch import nn

from diffprune.errors import ArgumentError
from diffprune.lab import Task, read_run, train
from diffprune.lab.training.metrics import error_rate
from diffprune.lab.training.task import is_wrong


def test_an_error_is_a_mean_of_examples(toy, recipe):
    task = toy(recipe)
    found = error_rate(task.model, task, task.test)
    pairs = [(task.model(inputs).argmax(1), labels) for inputs, labels in task.test]
    wrong = sum(int((answers != labels).sum()) for answers, labels in pairs)
    assert found == (pytest.approx(100 * wrong / 40), 40)


@pytest.mark.parametrize("shape", [(-1, 1), (-1,)], ids=["pixels", "parts"])
def test_examples_that_are_partly_wrong_tell_nothing_about_certainty(
    toy, recipe, shape
):
    def error(_outputs, labels):
        return torch.full_like(labels, 0.25, dtype=torch.float32).view(shape)

    task = replace(toy(recipe), error=error)
    assert error_rate(task.model, task, task.test) == (25.0, 0)


def test_batches_may_have_tokens_of_another_number(toy, recipe):
    def error(_outputs, labels):
        return torch.full((len(labels), len(labels)), 0.5)

    task = replace(toy(recipe), error=error)  # batches of 32 and of 8
    assert error_rate(task.model, task, task.test) == (50.0, 0)


def segmentation(_recipe):
    """Two pixels of three are of class 0, which is what the model says of all."""
    images = torch.zeros(4, 1, 1, 3)
    masks = torch.tensor([[[0, 0, 1]]] * 4)
    model = nn.Conv2d(1, 2, 1)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([9.0, -9.0]))
    data = [(images, masks)] * 2
    return Task(model=model, train=data, test=data)


def test_errors_of_pixels_have_a_mean_while_training_too(recipe, tmp_path):
    train(segmentation, replace(recipe.as_dense(), epochs=1, lr=0.0), out=tmp_path)
    (epoch,) = read_run(tmp_path).epochs
    assert epoch.train_error == pytest.approx(100 / 3)
    assert epoch.test_error == pytest.approx(100 / 3)
    assert epoch.macs_per_step == 3 * epoch.macs * 4


@pytest.mark.parametrize(
    "labels",
    [torch.rand(3, 1), torch.rand(3), torch.rand(3, 3), torch.zeros(3, 1).long()],
    ids=["regression", "flat", "probabilities", "column"],
)
def test_what_is_no_label_has_no_usual_error(labels):
    match = r"counts wrong classes; .*cannot say how wrong .*\(3, 2\) is for .*\(3"
    with pytest.raises(ArgumentError, match=match):
        is_wrong(torch.rand(3, 2), labels)


class Once:
    """What can be gone through once, though it says otherwise."""

    def __init__(self, batches):
        self.batches = list(batches)
        self.iterator = iter(self.batches)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return self.iterator


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("train", r"no batch to train on in epoch 2; .* begin anew"),
        ("validation", r"nothing to measure an error on; .* begin anew"),
    ],
)
def test_data_that_ends_for_good_is_named(toy, recipe, tmp_path, name, match):
    def make(recipe):
        task = toy(recipe)
        return replace(task, **{name: Once(getattr(task, name))})

    with pytest.raises(ArgumentError, match=match):
        train(make, recipe.as_dense(), out=tmp_path)

from dataclasses import replace

import pytest
import torch

from diffprune.lab.training.metrics import error_rate


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

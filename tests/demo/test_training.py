from dataclasses import replace

import pytest
import torch
from torch import nn

from diffprune.demo.training import Recipe, error_rate, open_units, train_
from diffprune.gates import Gate
from diffprune.recipes.digits import Digits, Examples, load_digits
from diffprune.recipes.models import LeNet5


@pytest.fixture(scope="module")
def few_digits():
    digits = load_digits()
    few = digits.train.take(torch.arange(100))
    return Digits(few, few, few)


def examples(*labels: int) -> Examples:
    return Examples(torch.eye(10)[list(range(len(labels)))], torch.tensor(labels))


@pytest.mark.parametrize(
    ("labels", "error"), [((0, 1, 2, 3), 0), ((0, 1, 2, 9), 25), ((5, 5), 100)]
)
def test_error_rate_is_the_percentage_of_wrong_answers(labels, error):
    assert error_rate(nn.Identity(), examples(*labels)) == error


def test_training_learns_what_it_sees(few_digits):
    torch.manual_seed(0)
    recipe = Recipe(epochs=15, batch_size=10, strength=0.0)
    *_, last = train_(LeNet5(), few_digits, recipe)
    assert last.validation_error < 10


def test_without_strength_every_gate_stays_open_longer(few_digits):
    def units_left(recipe: Recipe) -> int:
        torch.manual_seed(0)
        *_, last = train_(LeNet5(Gate), few_digits, recipe)
        return sum(last.raw)

    strong = Recipe(epochs=2, batch_size=10, strength=1e-2)
    weak = replace(strong, strength=0.0)
    assert units_left(strong) < units_left(weak)


def test_a_network_without_gates_is_all_open():
    assert open_units(LeNet5()).raw() == (20, 50, 800, 500)


def test_closed_gates_are_counted_where_they_are():
    model = LeNet5(Gate)
    with torch.no_grad():
        model.gate_fc1.logits[:7] = -5.0
    assert open_units(model).raw() == (20, 50, 800, 493)

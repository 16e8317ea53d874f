from dataclasses import replace

import pytest
from rich.console import Console

from diffprune.lab.digits import load_digits
from paper import recipes
from paper.ablations import stopping
from paper.recipes import table1_sigmoid

pytestmark = pytest.mark.slow


def test_runs_differ_from_the_papers_row_in_the_choice_alone():
    for choice in stopping.CHOICES:
        asked = stopping.recipe(choice)
        usual = table1_sigmoid()
        gate = {**usual.gate, "sigma": choice.sigma}
        same = replace(usual, name=asked.name, epochs=choice.epochs, gate=gate)
        assert asked == same


@pytest.fixture
def digits(monkeypatch):
    """Digits in place of MNIST, and looks that are early."""
    pytest.importorskip("sklearn")
    monkeypatch.setattr(recipes, "load_mnist", lambda **_: load_digits())
    monkeypatch.setattr(recipes, "_REST", (0, 1))
    monkeypatch.setattr(stopping, "LOOKS", (1, 2))


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("fades", [False, True])
def test_a_run_is_looked_at_several_times_and_trained_once(tmp_path, fades):
    choice = stopping.Choice(0.5, 2, fades=fades)
    found = stopping.run(choice, tmp_path)
    assert [(r.sigma, r.fades, r.epoch) for r in found] == [
        (0.5, fades, 1),
        (0.5, fades, 2),
    ]
    assert stopping.run(choice, tmp_path) == found
    console = Console(record=True, width=120)
    console.print(stopping.table(found))
    assert ("fade" if fades else "stay") in console.export_text()

import pytest
from rich.console import Console

from paper.ablations import fading, sigma

pytestmark = pytest.mark.slow


def test_a_run_is_looked_at_several_times(monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(sigma, "EPOCHS", (1, 2))
    monkeypatch.setattr(fading, "FADES", (0, 1))
    found = fading.run(3)
    assert [(r.sigma, r.seed, r.epoch) for r in found] == [(1.0, 3, 1), (1.0, 3, 2)]
    console = Console(record=True, width=120)
    console.print(fading.table(found))
    assert "-".join(map(str, found[1].raw.values())) in console.export_text()


def test_strengths_are_whole_and_then_gone():
    pytest.importorskip("sklearn")
    recipe = sigma.recipe(1.0, 0)
    strength = fading.task(recipe).pruner.keywords["strength"]
    start, end = (strength(epoch / recipe.epochs) for epoch in fading.FADES)
    assert (start, end) == (recipe.strength, 0.0)

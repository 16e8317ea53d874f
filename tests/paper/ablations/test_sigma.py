import pytest
from rich.console import Console

from paper.ablations import sigma

pytestmark = pytest.mark.slow


def test_at_the_threshold_all_are_pushed_alike():
    wide, narrow = (sigma.recipe(s, 0) for s in (1.0, 0.1))
    slopes = [r.strength / r.gate["sigma"] for r in (wide, narrow)]
    assert slopes[0] == pytest.approx(slopes[1])
    assert wide.decay == "constant"


def test_a_run_is_looked_at_several_times(monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(sigma, "EPOCHS", (1, 2))
    found = sigma.run(0.1, 3)
    assert [(r.sigma, r.seed, r.epoch) for r in found] == [(0.1, 3, 1), (0.1, 3, 2)]
    console = Console(record=True, width=120)
    console.print(sigma.table(found))
    assert "-".join(map(str, found[1].raw.values())) in console.export_text()

from dataclasses import replace

import pytest
from rich.console import Console

from paper.ablations import live_removal
from paper.lenet5_recipes import digits_sigmoid

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results():
    pytest.importorskip("sklearn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            live_removal,
            "digits_sigmoid",
            lambda seed: replace(digits_sigmoid(seed), epochs=2, strength=1e-3),
        )
        return [live_removal.run(0, removed=removed) for removed in (False, True)]


def test_runs_agree_in_everything_but_time(results):
    kept, removed = results
    assert kept.raw == removed.raw
    assert sum(kept.raw.values()) < 1370
    assert kept.loss == pytest.approx(removed.loss, rel=1e-3)
    assert len(kept.seconds) == 2


def test_both_runs_are_shown(results):
    console = Console(record=True, width=120)
    console.print(live_removal.table(results))
    text = console.export_text()
    assert "kept" in text
    assert "removed" in text

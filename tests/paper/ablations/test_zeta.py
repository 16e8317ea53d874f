from dataclasses import replace

import pytest
from rich.console import Console

from paper.ablations import zeta
from paper.lenet5_recipes import digits_sigmoid

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results():
    pytest.importorskip("sklearn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            zeta, "digits_sigmoid", lambda seed: replace(digits_sigmoid(seed), epochs=1)
        )
        return [zeta.run(0, constrained=kept) for kept in (True, False)]


def test_only_the_constrained_zeta_stays_at_zero_or_above(results):
    constrained, free = results
    assert min(constrained.zeta.values()) >= 0
    assert min(free.zeta.values()) < 0


def test_both_runs_are_shown(results):
    console = Console(record=True, width=120)
    console.print(zeta.table(results))
    text = console.export_text()
    assert "at least 0" in text
    assert "free" in text

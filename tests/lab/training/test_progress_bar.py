import pytest
from rich.console import Console

from diffprune.lab.runs.records import Epoch
from diffprune.lab.training.progress_bar import progress_bars


def epoch(**changes) -> Epoch:
    widths = {"a": 2, "b": 5, "c": 47, "d": 99}
    numbers = {
        "number": 1, "loss": 0.5, "train_error": 1.0, "validation_error": 2.0,
        "test_error": 3.0, "raw": widths, "effective": widths, "parameters": 7,
        "macs": 50_443, "macs_per_step": 9, "seconds": 1.0, "lr": 0.1, "prob_open": {},
    }  # fmt: skip
    return Epoch(**{**numbers, **changes})


@pytest.fixture(params=[80, 120])
def console(request):
    return Console(record=True, width=request.param)


@pytest.mark.parametrize(
    ("validation", "shown"), [(2.0, "held out  2.00 %"), (None, "error  3.00 %")]
)
def test_a_bar_is_one_line_with_everything_in_it(console, validation, shown):
    with progress_bars(console, ["pruned"], epochs=1) as bars:
        bars["pruned"](epoch(validation_error=validation))
    (line,) = console.export_text().strip().splitlines()
    for word in ("pruned", "1/1", "loss 0.500", shown, "2-5-47-99", "50.4k MACs"):
        assert word in line


def test_many_gates_are_summed_up(console):
    with progress_bars(console, ["wrn"], epochs=1) as bars:
        bars["wrn"](epoch(effective={str(n): 100 for n in range(24)}))
    (line,) = console.export_text().strip().splitlines()
    assert "2,400 in 24 gates" in line


def test_no_bar_without_news(console):
    with progress_bars(console, ["dense", "pruned"], epochs=1):
        pass
    assert console.export_text().strip() == ""

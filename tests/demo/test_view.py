import pytest
from rich.console import Console

from diffprune.demo.summary import Outcome, Summary
from diffprune.demo.training import Epoch, Recipe
from diffprune.demo.view import comparison, progress_bars
from diffprune.recipes.counting import Widths

DENSE = Widths(20, 50, 800, 500)


def epoch(raw: Widths, effective: Widths) -> Epoch:
    return Epoch(number=1, loss=0.5, validation_error=2.0, raw=raw, effective=effective)


@pytest.fixture
def summary():
    small = epoch(Widths(2, 5, 66, 99), Widths(2, 5, 47, 99))
    return Summary(
        seed=0,
        recipe=Recipe(),
        dense=Outcome(history=(epoch(DENSE, DENSE),), test_error=1.0),
        pruned=Outcome(history=(small,), test_error=2.5),
        date="2020-01-01",
        seconds=1.0,
        versions={},
        files=(),
    )


@pytest.fixture(params=[80, 120])
def console(request):
    return Console(record=True, width=request.param)


def test_the_table_fits_and_shows_both_counts(console, summary):
    console.print(comparison(summary))
    text = console.export_text()
    for cell in ("2-5-66-99", "2-5-47-99", "2,293,000", "50,443", "2.2 %", "2.50 %"):
        assert cell in text


def test_the_bars_show_loss_error_and_widths_on_one_line(console):
    with progress_bars(console, epochs=1) as on_epoch:
        on_epoch("pruned", epoch(DENSE, Widths(2, 5, 47, 99)))
    (line,) = console.export_text().strip().splitlines()
    for word in ("pruned", "1/1", "loss 0.500", "error  2.00 %", "2-5-47-99"):
        assert word in line


def test_no_bar_without_news(console):
    with progress_bars(console, epochs=1):
        pass
    assert console.export_text().strip() == ""

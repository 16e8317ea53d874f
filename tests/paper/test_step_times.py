from dataclasses import replace

import pytest
from rich.console import Console

from paper.records import RESULTS, read_records
from paper.step_times import (
    epochs_table,
    full,
    measure,
    measure_epoch,
    measure_epochs,
    narrow,
    paper_table,
)  # fmt: skip
from paper.tables.wide_resnet_table import WRN_10_2

WIDTHS = (((9, 7),), ((20, 12),), ((30, 40),))


@pytest.fixture(scope="module")
def timings():
    flat = [width for ((hidden, outputs),) in WIDTHS for width in (hidden, outputs)]
    return measure([full(10, 2), narrow("some", flat, 10, 2)], rounds=2)


def macs(widths):
    """By hand: both convolutions of every block, and its shortcut."""
    total, inputs, size = 32 * 32 * 27 * 16, 16, 32
    for ((hidden, outputs),), stride in zip(widths, (1, 2, 2), strict=True):
        size //= stride
        total += size**2 * (9 * hidden * (inputs + outputs) + inputs * outputs)
        inputs = outputs
    return total + 10 * inputs


def test_narrow_networks_have_the_widths_asked_for(timings):
    whole, some = timings
    assert whole.macs == macs((((32, 32),), ((64, 64),), ((128, 128),)))
    assert some.macs == macs(WIDTHS)
    assert len(some.seconds) == 2


def test_the_table_puts_times_beside_multiply_adds(timings):
    console = Console(record=True, width=100)
    console.print(paper_table(timings))
    text = console.export_text()
    assert f"{timings[1].macs / timings[0].macs:.1%}" in text
    assert "100.0%" in text


def test_the_network_that_is_timed_is_that_of_the_epoch():
    small = WRN_10_2
    runs = read_records(RESULTS / "wrn", "")
    run = next(run for run in runs if not run.is_dense)
    few = replace(run, recipe=replace(run.recipe, batch_size=4))
    result = measure_epoch(small, few, run.epochs[-1])
    assert (result.run, result.epoch) == (run.recipe.name, run.epochs[-1].number)
    assert result.macs == run.outcome.macs
    console = Console(record=True, width=100)
    console.print(epochs_table([result]))
    assert f"{result.seconds / result.original:.1%}" in console.export_text()


def test_an_epoch_that_removed_nothing_is_not_timed_again():
    run = next(run for run in read_records(RESULTS / "wrn", "") if not run.is_dense)
    last = replace(run.epochs[-1], number=2)
    twice = (replace(last, number=1), last)
    few = replace(run, recipe=replace(run.recipe, batch_size=4, seed=0), epochs=twice)
    (result,) = measure_epochs(WRN_10_2, [few])["results"]
    assert result["epoch"] == 1

import pytest
from rich.console import Console

from benchmarks.wrn_step import full, measure, narrow, show

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
    console.print(show(timings))
    text = console.export_text()
    assert f"{timings[1].macs / timings[0].macs:.1%}" in text
    assert "100.0%" in text

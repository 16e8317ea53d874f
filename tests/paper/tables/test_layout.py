"""Every table of the paper's records is whole on a terminal of 80 columns."""

import pytest

from paper.experiments import EXPERIMENTS
from paper.records import RESULTS, read_records
from paper.tables.comparison_table import comparison_table, read_comparison


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_number_of_our_runs_is_cut(name, lines_of):
    table = EXPERIMENTS[name].table(read_records(RESULTS / name, ""))
    assert not any("…" in line for line in lines_of(table, 80))


def test_no_number_of_the_comparison_is_cut(lines_of):
    lines = lines_of(comparison_table(read_comparison(RESULTS)), 80)
    assert any("  seed 1, 200 epochs" in line for line in lines)
    assert not any("…" in line for line in lines)

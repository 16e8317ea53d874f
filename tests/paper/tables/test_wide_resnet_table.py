from dataclasses import replace

import pytest

from paper.recipes import small_wrn_dense, small_wrn_high, wide_wrn_high_budget
from paper.tables.wide_resnet_table import (
    PRINTED,
    WHOLE,
    wide_macs,
    wide_resnet_table,
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "macs"), [("low", 3.70e9), ("high", 2.18e9)], ids=["low", "high"]
)
def test_the_printed_widths_cost_what_they_were_found_to_cost(kind, macs):
    assert wide_macs(PRINTED[kind]) == pytest.approx(macs, rel=2e-3)


@pytest.mark.parametrize("widths", PRINTED.values(), ids=PRINTED)
def test_the_printed_widths_fit_the_network(widths):
    for group, whole in zip(widths, WHOLE, strict=True):
        for block, most in zip(group, whole, strict=True):
            assert all(0 < w <= m for w, m in zip(block, most, strict=True))


def test_the_table_has_the_paper_above_and_ours_below(done, lines_of):
    (epoch,) = done.epochs
    whole = replace(epoch, macs=1_000)
    half = replace(whole, number=2, macs=400, test_error=12.5)
    dense = replace(done, recipe=small_wrn_dense(), epochs=(whole,), outcome=None)
    high = replace(done, recipe=small_wrn_high(), epochs=(whole, half), outcome=None)
    *_, ours = [
        line for line in lines_of(wide_resnet_table([dense, high])) if "high" in line
    ]
    for text in ("12.50", "40.0%", f"2/{high.recipe.epochs}"):
        assert text in ours
    paper, *_ = [
        line for line in lines_of(wide_resnet_table([dense])) if "high" in line
    ]
    assert all(text in paper for text in ("4.5", "2.18G", "41.6%"))


def test_without_the_original_there_is_no_share(done, lines_of):
    high = replace(done, recipe=small_wrn_high())
    *_, ours = [line for line in lines_of(wide_resnet_table([high])) if "high" in line]
    assert "%" not in ours


def test_a_network_without_runs_has_no_section(done, lines_of):
    high = [replace(done, recipe=wide_wrn_high_budget(seed)) for seed in (0, 3)]
    lines = lines_of(wide_resnet_table(high))
    assert not any("WRN-10-1" in line for line in lines)
    shown = [line for line in lines if "high, budget" in line or "seed 3" in line]
    assert ["seed" in line for line in shown] == [False, True]

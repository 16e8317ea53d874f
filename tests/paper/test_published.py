import re

import pytest

from paper.models.lenet5 import DENSE
from paper.published import lenet5_on_mnist

BY_METHOD = {row.method: row for row in lenet5_on_mnist()}


@pytest.mark.parametrize(
    ("method", "weights", "macs"),
    [
        ("Sparse VD", 40_012, 660_212),
        ("GL", 101_975, 201_800),
        ("GD", 5_938, 249_888),
        ("SBP", 84_627, 212_802),
        ("BC-GNJ", 4_074, 282_874),
        ("BC-GHS", 2_751, 153_376),
        ("L0", 38_410, 1_113_410),
        ("L0, λ sep", 6_150, 390_675),
        ("MDR-ExpUni", 3_892, 165_742),
        ("DiffPrune", 164_879, 842_754),
        ("DiffPrune reg", 8_085, 466_835),
        ("L0-ARM sep", 2_189, 182_939),
        ("DeepHoyer Group-HS", 3_562, 169_937),
        ("DBB", 4_430, 384_430),
        ("FLOPs objective, 100K", 58_716, 109_516),
    ],
)
def test_costs_follow_from_the_architecture(method, weights, macs):
    widths = BY_METHOD[method].widths
    assert (widths.weights, widths.macs) == (weights, macs)


@pytest.mark.parametrize("row", lenet5_on_mnist(), ids=lambda row: row.method)
def test_every_row_says_where_it_stands_and_how_sure_it_is(row):
    assert re.search(r"\b(20\d\d)\b", row.source)
    assert row.source in row.reference().note
    assert 0.5 < row.error < 2
    assert all(0 < n <= full for n, full in zip(row.widths, DENSE, strict=True))


def test_the_rows_of_the_paper_are_a_group_of_their_own():
    groups = {row.method: row.reference().group for row in lenet5_on_mnist()}
    assert [m for m, group in groups.items() if group == "the paper"] == [
        "DiffPrune", "DiffPrune reg",
    ]  # fmt: skip

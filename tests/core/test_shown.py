"""Tables as text and as HTML."""

import torch
from torch import nn

import diffprune as dp
from diffprune._core.shown import Shown


def test_it_is_text_that_a_terminal_shows_as_it_is():
    table = Shown([("a", "b"), ("x", "10"), ("yy", "2")], numbers=[1], after=["end"])
    assert table == "a    b\nx   10\nyy   2\nend"
    assert repr(table) == str(table)
    assert "yy" in table


def test_a_notebook_shows_a_table_and_no_markup_of_the_user():
    html = Shown([("a",), ("<script>",)], before=["1 < 2"])._repr_html_()
    assert "<table>" in html
    assert "<script>" not in html
    assert "1 &lt; 2" in html


def test_what_people_look_at_in_notebooks():
    model, x = (
        nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)),
        torch.rand(2, 3),
    )
    groups = dp.find_groups(model, x)
    assert repr(groups) == str(groups)
    assert "<td" in groups._repr_html_()
    plan = dp.surgery.plan_removal(groups, keep={"0": torch.arange(5) < 3})
    assert len(repr(plan)) < 200
    assert "units kept" in plan._repr_html_()
    pruner = dp.Pruner(model, x, strength=1e-3)
    assert repr(pruner).startswith("Pruner(Sequential: 32 of 32 parameters")
    assert "P(open)" in pruner._repr_html_()
    assert "<th" in pruner.summary()._repr_html_()

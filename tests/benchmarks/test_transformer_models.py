"""Architectures of transformers are still as the record says."""

from dataclasses import replace

import pytest

from benchmarks import transformer_models
from benchmarks.transformer_cases import CASES
from benchmarks.transformer_cuts import look_at
from benchmarks.transformer_models import Result, rows

RECORD = {result.model: result for result in transformer_models.RUNS.read()}
QUICK = ("GPT-2",)
SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in CASES if n not in QUICK]


def test_every_architecture_is_on_record():
    assert RECORD.keys() == CASES.keys()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of DeBERTa
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_an_architecture_is_as_recorded(name):
    found, recorded = look_at(name), RECORD[name]
    assert found.relative < 1e-9
    same = {"relative": recorded.relative, "version": recorded.version}
    assert replace(found, **same) == recorded


def test_a_star_marks_numbers_that_not_every_width_allows():
    found = Result(
        model="some", version="5", kind="Some", parts=["heads", "hidden units"],
        relative=0.0, numbers=["a and b", "c"], with_many_heads=["c"], is_loaded=True,
    )  # fmt: skip
    assert [*rows([found])] == [
        ("some", "heads, hidden units", r"`a` with `b` (\*), `c`")
    ]
    said = [row[-1] for row in rows([replace(found, is_loaded=False)])]
    assert said == ["nothing"]

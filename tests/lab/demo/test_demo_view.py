from dataclasses import replace

import pytest
from rich.console import Console

from diffprune._pruner import RemovalRecord
from diffprune._surgery.plan import Certificate
from diffprune.lab.demo.demo_summary import Summary
from diffprune.lab.demo.demo_view import comparison, proof, whereabouts
from diffprune.lab.runs.records import Epoch, Outcome, Run
from paper.lenet5_tasks import GATES, digits_sigmoid
from paper.models.counting import Widths


def run(raw: Widths, effective: Widths, removals, error, seconds) -> Run:
    gates = {
        "raw": dict(zip(GATES, raw, strict=True)),
        "effective": dict(zip(GATES, effective, strict=True)),
    }
    costs = {"parameters": effective.parameters, "macs": effective.macs}
    epochs = [
        Epoch(
            number=n, loss=0.5, train_error=1.0, validation_error=2.0, test_error=error,
            macs_per_step=1, seconds=s, lr=0.1, prob_open={}, **gates, **costs,
        )
        for n, s in enumerate(seconds, start=1)
    ]  # fmt: skip
    outcome = Outcome(
        validation_error=2.0, test_error=error, seconds=1.0, **gates, **costs
    )
    return Run(
        recipe=digits_sigmoid(),
        environment={},
        epochs=tuple(epochs),
        removals=tuple(removals),
        outcome=outcome,
    )


@pytest.fixture
def summary(tmp_path):
    dense = Widths(20, 50, 800, 500)
    gaps = [Certificate(1e-6, 1e-7, "float32"), Certificate(2e-6, 3e-7, "float32")]
    removals = [RemovalRecord(1, {}, 1, 1, gap) for gap in gaps]
    return Summary(
        dense=run(dense, dense, [], 1.0, [2.0, 2.1]),
        pruned=run(
            Widths(2, 5, 66, 99), Widths(2, 5, 47, 99), removals, 2.5, [2.5, 0.5]
        ),
        seconds=42.0,
        files=(tmp_path / "metrics.jsonl", tmp_path / "summary.json"),
    )


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_shows_counts_costs_and_time(summary, width):
    console = Console(record=True, width=width)
    console.print(comparison(summary))
    text = console.export_text()
    for cell in (
        "2-5-66-99", "2-5-47-99", "2,293,000", "50,443", "2.2 %", "2.50 %",
        "2.00 -> 2.10", "2.50 -> 0.50",
    ):  # fmt: skip
        assert cell in text


def test_the_proof_is_the_worst_of_all_removals(summary):
    assert proof(summary).startswith("2 removals, each verified: outputs differ by")
    assert "3.0e-07 relative" in proof(summary)


def test_without_removals_there_is_advice_instead_of_a_proof(summary):
    untouched = Summary(
        dense=summary.dense, pruned=summary.dense, seconds=1.0, files=summary.files
    )
    assert "train for longer" in proof(untouched)


def test_the_files_are_named_with_their_folder_and_use(summary, tmp_path):
    reason = "to write ONNX, onnx must be installed.\nType `pip install ...`."
    console = Console(record=True, width=200)
    console.print(whereabouts(replace(summary, missing=(reason,))))
    text = console.export_text()
    assert f"42 seconds. Written to {tmp_path}:" in text
    assert "summary.json   the numbers above" in text
    assert "left out       to write ONNX, onnx must be installed. Type" in text

"""The figures of the documentation are those of the records."""

from dataclasses import replace

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from paper.figures import (
    CURVES,
    PICTURES,
    charts,
    curve_rows,
    frontier_rows,
    read_specification,
    save,
    specification,
    table1_rows,
)  # fmt: skip
from paper.models.lenet5 import Widths
from paper.records import RESULTS, read_records
from paper.tables.comparison_table import Result
from paper.tables.frontier_table import Point


@pytest.fixture(scope="module")
def drawn():
    return charts()


@pytest.mark.parametrize("name", [*CURVES, "frontier.svg", "table1.svg"])
def test_a_figure_shows_what_the_records_say(name, drawn):
    committed = read_specification(PICTURES / name)
    assert committed == specification(drawn[name]), "run `python -m paper figures`"


def test_no_other_figure_is_drawn(drawn):
    assert set(drawn) == {*CURVES, "frontier.svg", "table1.svg"}


def test_a_file_carries_its_specification(drawn, tmp_path):
    save(drawn["frontier.svg"], tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg")
    expected = specification(drawn["frontier.svg"])
    assert read_specification(tmp_path / "figure.svg") == expected


def test_a_picture_without_a_specification_is_an_error(tmp_path):
    (tmp_path / "figure.svg").write_text("<svg></svg>")
    with pytest.raises(ValueError, match="no specification"):
        read_specification(tmp_path / "figure.svg")


def test_what_is_published_and_not_beaten_has_a_name():
    def point(name, weights, error, *, tensors=3, is_ours=False):
        return Point(
            name=name, architecture="", weights=weights, tensors=tensors, macs=1,
            error=error, is_ours=is_ours,
        )  # fmt: skip

    points = [
        point("small", 1, 2.0), point("beaten", 3, 2.0), point("good", 3, 1.0),
        point("ours", 3, 0.5, is_ours=True),
        point("sparse", 3, 0.5, tensors=9, is_ours=True),
    ]  # fmt: skip
    found = list(frontier_rows(points, "weights"))
    assert [row["name"] for row in found] == ["small", "", "good", "", ""]
    kinds = [row["kind"] for row in found[-2:]]
    assert kinds == ["diffprune", "diffprune, weights one by one"]


def test_every_epoch_of_every_run_is_a_point():
    run, *_ = read_records(RESULTS / "wrn", "")
    (epoch, *_) = run.epochs
    first = replace(run, epochs=(epoch,))
    values = [
        row["value"] for curve in CURVES.values() for row in curve_rows(curve, [first])
    ]
    assert values == pytest.approx(
        [
            100 - epoch.test_error,
            epoch.macs * run.recipe.batch_size / 1e6,
            epoch.processor_seconds / epoch.steps,
        ]
    )


def test_every_network_of_a_system_is_drawn():
    def result(where, epochs, error):
        return Result(
            system="L0", where=where, open_gates="", widths=Widths(5, 10, 76, 16),
            error=error, epochs=epochs,
        )  # fmt: skip

    shown = [("published", 0, 0.9), ("here", 20, 2.0), ("here", 100, 1.5)]
    rows = list(table1_rows({"L0": [result(*one) for one in shown]}))
    assert [(r["kind"], r["error"]) for r in rows] == [
        ("published", 0.9), ("here, up to 20 epochs", 2.0), ("here, 100 or 200", 1.5)
    ]  # fmt: skip
    assert all((r["weights"], r["macs"]) == (2_751, 153_376) for r in rows)

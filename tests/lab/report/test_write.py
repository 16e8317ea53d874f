import json
import re
import sys

import pytest

from diffprune.errors import ArgumentError, MissingPackageError, StorageError
from diffprune.lab import Recipe
from diffprune.lab.report import Reference, write_report

pytestmark = pytest.mark.usefixtures("no_vega")
HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_the_file_needs_nothing_else(make_run, tmp_path):
    path = write_report([make_run("small")], tmp_path / "new" / "report.html")
    html = path.read_text()
    assert path == tmp_path / "new" / "report.html"
    assert not re.search(r"(src|href)=(?!\"#)|url\(|@import|https?:", html)
    assert path.stat().st_size < 100_000


def test_a_large_run_stays_a_few_megabytes(make_run, tmp_path):
    gates = {f"layer{number}": 640 for number in range(24)}
    folder = make_run("large", epochs=200, gates=gates)
    path = write_report([folder], tmp_path / "report.html", measure=False)
    assert path.stat().st_size < 3_000_000
    assert path.read_text().count('id="gate-') == 12


def test_gates_that_a_budget_held_open_are_not_drawn(make_run, tmp_path):
    folder = make_run("steered", gates={"fc": 8})
    html = write_report([folder], tmp_path / "learned.html", measure=False).read_text()
    assert "How the gates decided" in html
    metrics = folder / "metrics.jsonl"
    epochs = [json.loads(line) for line in metrics.read_text().splitlines()]
    for epoch in epochs:
        epoch["prob_open"] = {"fc": [1.0] * len(epoch["prob_open"]["fc"])}
    metrics.write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))
    html = write_report([folder], tmp_path / "held.html", measure=False).read_text()
    assert "How the gates decided" not in html


@pytest.mark.parametrize("field", ["name", "gate"])
def test_hostile_names_stay_text(make_run, tmp_path, field):
    gates = {HOSTILE if field == "gate" else "fc": 8}
    recipe = Recipe(name=HOSTILE, epochs=4, strength={"fc": 1.0})
    folder = make_run("x", gates=gates, recipe=recipe)
    if field == "name":
        folder = folder.rename(folder.with_name(HOSTILE.replace("/", "")))
    html = write_report([folder], tmp_path / "report.html").read_text()
    assert "<img" not in html
    assert "&lt;img src=x" in html
    assert html.count("</script>") == 3


def test_a_loss_of_accuracy_is_a_warning_on_the_page(make_run, tmp_path):
    runs = [make_run("full", gates={}), make_run("small")]
    page = tmp_path / "report.html"
    assert 'class="warning"' not in write_report(runs, page).read_text()
    for folder, error in zip(runs, (1.75, 10.3), strict=True):
        path = folder / "summary.json"
        changed = {"test_error": error, "test_examples": 300}
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    html = write_report(runs, page).read_text()
    assert 'class="warning"' in html
    assert "<title>small: 25\N{NO-BREAK SPACE}% of the multiply-adds - diffp" in html


def test_references_stand_beside_the_runs(make_run, tmp_path):
    theirs = Reference(
        label="BC-GHS", error=1.0, macs=153_376, parameters=2_751, note="a paper"
    )
    run = make_run("m")
    beside = write_report([run], tmp_path / "m.html", references=[theirs])
    alone = write_report([run], tmp_path / "o.html")
    assert "BC-GHS" in beside.read_text()
    assert "The tables say where the numbers of others stand." in beside.read_text()
    assert 'id="front-macs"' not in alone.read_text()


def test_a_report_needs_a_run(tmp_path):
    with pytest.raises(ArgumentError, match="at least one run folder, got none"):
        write_report([], tmp_path / "report.html")


def test_a_run_without_an_epoch_has_nothing_to_report(make_run, tmp_path):
    folder = make_run("young", epochs=1, finished=False)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(ArgumentError, match="young` has not finished an epoch"):
        write_report([folder], tmp_path / "report.html")


def test_several_runs_are_compared(make_run, tmp_path):
    runs = [make_run("full", gates={}), make_run("a"), make_run("b", epochs=2)]
    html = write_report(runs, tmp_path / "report.html").read_text()
    assert "a, smallest of 2: " in html
    assert 'id="front-macs"' in html
    assert "<option>a</option><option>b</option>" in html


def test_a_dense_run_alone_has_a_report(make_run, tmp_path):
    path = write_report([make_run("full", gates={})], tmp_path / "report.html")
    html = path.read_text()
    assert "Asked for: no gates" in html
    assert 'id="architecture"' not in html
    assert "Certificates" not in html


def test_certificates_are_summed_up(make_run, tmp_path):
    html = write_report([make_run("small")], tmp_path / "report.html").read_text()
    assert "small: 4 removals, each verified." in html
    assert "differ by at most 4.0e\N{NON-BREAKING HYPHEN}07" in html


def test_finished_runs_are_used_and_others_finished(make_run, tmp_path):
    done = write_report([make_run("done")], tmp_path / "done.html").read_text()
    folder = make_run("it's not", finished=False)
    young = write_report([folder], tmp_path / "young.html").read_text()
    assert "dp.load_pruned(model, " in done
    assert "diffprune train &#39;" in young


def test_nowhere_to_write_is_said_plainly(make_run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*file`: File exists"):
        write_report([make_run("small")], tmp_path / "file" / "r.html")


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_a_missing_package_is_named(make_run, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingPackageError, match=rf"{package}.*\n.*diffprune\[report\]"
    ):
        write_report([make_run("small")], tmp_path / "report.html")

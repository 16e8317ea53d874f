import json

import pytest


def test_a_page_is_written(in_finished, tmp_path):
    pytest.importorskip("altair")
    out = tmp_path / "new" / "page.html"
    done = in_finished("report", "runs/mine", "--no-measure", "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert f"Written to {out}" in done.stdout.replace("\n", "")
    assert "<html" in out.read_text(encoding="utf-8")


def test_json_says_where_and_how_large(in_finished, tmp_path, monkeypatch):
    out = tmp_path / "page.html"
    out.write_text("a page")
    monkeypatch.setattr("diffprune.lab.report.write_report", lambda *_, **__: out)
    done = in_finished(
        "report", "runs/mine", "--no-measure", "--out", str(out), "--json"
    )
    assert json.loads(done.stdout) == {"path": str(out), "bytes": out.stat().st_size}


def test_a_missing_package_is_named(in_finished, monkeypatch):
    monkeypatch.setattr("diffprune.lab.report.write.find_spec", lambda _: None)
    done = in_finished("report", "runs/mine")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "pip install 'diffprune[report]'" in done.stderr


def test_a_folder_without_a_run_is_named(diffprune):
    done = diffprune("report", "nowhere")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "`nowhere` holds no run" in done.stderr

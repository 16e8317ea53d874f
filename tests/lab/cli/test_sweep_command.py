import json

import pytest

pytest.importorskip("optuna")


@pytest.mark.usefixtures("source")
def test_a_run_for_each_value(diffprune, tmp_path):
    done = diffprune(
        *("sweep", "mine.py:task", "--vary", "parameters=0.9,0.6", "--epochs", "2"),
        *("--out", "all", "--figure", "front.svg", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == ["parameters=0.9", "parameters=0.6"]
    assert rows[1]["parameters"] <= 0.6 * 50
    assert (tmp_path / "front.svg").exists()
    assert (tmp_path / "all" / "parameters=0.6" / "summary.json").exists()


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("typed", "message"),
    [("macs", "does not say what to vary"), ("mac=0.5", "cannot vary `mac`")],
)
def test_what_cannot_be_varied_is_said(diffprune, typed, message):
    done = diffprune("sweep", "mine.py:task", "--vary", typed)
    assert done.exit_code == 1
    assert message in done.stderr

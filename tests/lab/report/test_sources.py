import pytest

from diffprune.errors import ArgumentError
from diffprune.lab.report.sources import read_sources


def test_a_run_is_called_like_its_folder(make_run):
    (source,) = read_sources([make_run("mine")])
    assert source.name == "mine"
    assert source.last.number == 4
    assert not source.is_dense


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["a/x", "b/x"], ["a/x", "b/x"]),
        (["1/a/x", "2/a/x", "2/b"], ["a/x", "a/x (2)", "2/b"]),
    ],
)
def test_names_differ_even_if_folders_are_called_alike(make_run, folders, names):
    sources = read_sources([make_run(folder) for folder in folders])
    assert [source.name for source in sources] == names


def test_a_report_needs_a_run():
    with pytest.raises(ArgumentError, match="at least one run folder, got none"):
        read_sources([])


def test_a_run_without_an_epoch_has_nothing_to_report(make_run):
    folder = make_run("young", epochs=1, finished=False)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(ArgumentError, match="young` has not finished an epoch"):
        read_sources([folder])


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="holds no run"):
        read_sources([tmp_path])

import pytest

from diffprune.errors import ArgumentError
from diffprune.lab.runs.records import read_run, read_runs


def test_a_run_is_called_like_its_folder(make_run):
    run = read_run(make_run("mine"))
    assert run.name == "mine"
    assert not run.is_dense


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["a/x", "b/x"], ["a/x", "b/x"]),
        (["1/a/x", "2/a/x", "2/b"], ["a/x", "a/x (2)", "2/b"]),
    ],
)
def test_names_differ_even_if_folders_are_called_alike(make_run, folders, names):
    runs = read_runs([make_run(folder) for folder in folders])
    assert [run.name for run in runs] == names


def test_the_latest_network_is_the_outcome_or_that_of_the_last_epoch(make_run):
    done, young = read_runs([make_run("done"), make_run("young", finished=False)])
    assert done.latest is done.outcome
    assert young.latest is young.epochs[-1]


def test_before_the_first_epoch_there_is_no_network(make_run):
    folder = make_run("new", epochs=1, finished=False)
    (folder / "metrics.jsonl").unlink()
    assert read_run(folder).latest is None
    assert read_run(folder).to_dict()["macs"] is None


def test_the_worst_certificate_is_that_of_the_largest_change(make_run):
    assert read_run(make_run("mine")).worst_certificate().max_relative == 4e-7
    assert read_run(make_run("dense", gates={})).worst_certificate() is None


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="holds no run"):
        read_runs([tmp_path])


@pytest.mark.parametrize("name", ["recipe.json", "environment.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", [b"{", b"\xa7"])
def test_a_damaged_file_is_named(make_run, name, content):
    folder = make_run("mine")
    (folder / name).write_bytes(content)
    with pytest.raises(ArgumentError, match=f"is damaged.*`{name}`: "):
        read_run(folder)


def test_a_file_without_an_end_is_damaged(make_run):
    folder = make_run("deep")
    (folder / "recipe.json").write_text("[" * 100_000)
    with pytest.raises(ArgumentError, match="is damaged"):
        read_run(folder)

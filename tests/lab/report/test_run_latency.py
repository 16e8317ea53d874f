import torch

from diffprune.lab import Recipe, train
from diffprune.lab.report.run_latency import measure
from diffprune.lab.runs.records import read_runs
from diffprune.lab.runs.tasks import load_task

DIGITS = "diffprune.lab.digits:digits_task"
TASK = """
import torch
from torch import nn
from diffprune.lab import Task
from diffprune.lab.image_batches import Batches, Examples

def toy(recipe):
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    data = Examples(inputs, (inputs.sum(dim=1) > 0).long())
    return Task(
        model=nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)),
        train=Batches(data, recipe.batch_size, shuffle=True),
        test=Batches(data, 32),
    )
"""


def trained(folder, name, text=TASK):
    """A run of a task of its own."""
    file = folder / f"{name}.py"
    file.write_text(text)
    make_task, _ = load_task(f"{file}:toy")
    recipe = Recipe(
        name="toy", epochs=2, batch_size=8, strength=0.1, pruner={"remove_every": 4}
    )
    train(make_task, recipe, out=folder / name)
    return folder / name


def test_networks_of_other_tasks_are_not_timed_beside_each_other(tmp_path):
    narrow = trained(tmp_path, "narrow")
    wide = trained(
        tmp_path,
        "wide",
        TASK.replace("(64, 4,", "(64, 5,").replace("Linear(4,", "Linear(5,"),
    )
    seen = measure(read_runs([narrow, wide]), trust=True)
    assert "`wide` does not take the inputs of the first run" in seen.note
    assert seen.dense.parameters == 4 * 16 + 16 + 16 * 2 + 2


def test_a_finished_run_is_rebuilt_and_timed(tmp_path):
    trained(tmp_path, "run")
    seen = measure(read_runs([tmp_path / "run"]), trust=True)
    assert "median of 31 rounds" in seen.note
    assert seen.dense.parameters == 4 * 16 + 16 + 16 * 2 + 2
    assert seen.dense.macs == 4 * 16 + 16 * 2
    assert seen.dense.widths == {"0": 16}
    assert 4 * seen.dense.parameters < seen.dense.file_size < 2_000
    first, last = seen.layers["run"]
    assert (first.name, first.macs[0], last.macs[0]) == ("0", 64, 32)
    assert [block.name for block in seen.blocks] == ["input", "0", "2", "output"]
    assert seen.small_blocks["run"][1].units <= 16
    assert 0 < seen.seconds["run"] < 2 * seen.dense.seconds


def test_an_unfinished_run_has_a_network_before_training(make_run):
    state = torch.get_rng_state()
    seen = measure(read_runs([make_run("digits", task=DIGITS, finished=False)]))
    assert torch.equal(torch.get_rng_state(), state)
    assert seen.note == "Latency is measured once a run is finished."
    assert (seen.dense.parameters, seen.dense.macs) == (431_080, 2_293_000)
    assert list(seen.dense.widths.values()) == [20, 50, 500]
    assert seen.dense.file_size > 4 * 431_080


def test_a_run_that_does_not_say_where_its_task_is(make_run):
    seen = measure(read_runs([make_run("mine")]))
    assert seen.note == "Latency: no run says where its task is written."
    assert seen.dense is None


def test_a_task_that_is_gone_is_named(make_run):
    seen = measure(read_runs([make_run("mine", task="gone.py:toy")]), trust=True)
    assert seen.note.startswith("Latency was not measured: there is no file")
    assert "gone.py" in seen.note


def test_a_task_that_fails_is_told_and_does_not_cost_the_page(make_run, tmp_path):
    (tmp_path / "mine.py").write_text("def task(recipe): return recipe.nothing")
    seen = measure(read_runs([make_run("a", task="../../mine.py:task")]), trust=True)
    assert seen.note.startswith("Latency was not measured: AttributeError: 'Recipe'")


def test_dense_runs_have_nothing_to_compare(make_run):
    seen = measure(read_runs([make_run("dense", gates={}, task=DIGITS)]))
    assert seen.note == "Latency is measured of runs with gates; there is none."


def test_code_from_elsewhere_is_not_run(make_run, tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit")
    seen = measure(read_runs([make_run("mine", task="../../evil.py:task")]))
    assert seen.note.startswith("Latency was not measured: the run in")
    assert "which is not in the present folder" in seen.note

from dataclasses import replace

import pytest
import torch

from diffprune._surgery.compare import outputs
from diffprune.errors import ArgumentError
from diffprune.lab import train
from diffprune.lab.runs.rebuild import rebuild, task_of

SOURCE = """
import torch
from torch import nn
import diffprune as dp
from diffprune.lab import Task
from diffprune.lab.image_batches import Batches, Examples

def task(recipe):
    x = torch.randn(64, 4)
    data = Examples(x, (x.sum(dim=1) > 0).long())
    return Task(
        model=nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)),
        train=Batches(data, recipe.batch_size, shuffle=True),
        test=Batches(data, 32),
    )

def gated(recipe):
    made = task(recipe)
    made.model.insert(2, dp.Gate(16))
    return made

def longer(recipe):
    made = task(recipe)
    made.model.extend([nn.Linear(2, 2), nn.Linear(2, 2)])
    return made
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("task") / "rebuilt.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module", params=["task", "gated"])
def trained(request, file, recipe):
    """A finished run, with gates of the pruner's and with gates of its own."""
    from diffprune.lab.runs.tasks import load_task

    folder = file.parent / request.param
    make_task, _ = load_task(f"{file}:{request.param}")
    return folder, train(make_task, replace(recipe, seed=3), out=folder)


def test_the_small_model_is_the_one_that_came_out(trained):
    folder, small = trained
    models = rebuild(folder, trust=True)
    (expected,), (actual,) = (
        outputs(model, models.inputs) for model in (small, models.small)
    )
    assert torch.equal(expected, actual)
    assert models.small[0].out_features < models.dense[0].out_features == 16
    assert not models.small.training


def test_the_inputs_are_those_that_were_tested(trained):
    folder, _ = trained
    torch.manual_seed(3)
    assert torch.equal(rebuild(folder, trust=True).inputs, torch.randn(64, 4)[:32])


def test_a_random_state_is_left_as_it_was(trained):
    before = torch.get_rng_state()
    rebuild(trained[0], trust=True)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_task_that_has_changed_is_noticed(trained, file):
    folder, _ = trained
    with pytest.raises(ArgumentError, match="does not fit its task"):
        rebuild(folder, f"{file}:longer")


def test_a_task_made_on_the_fly_has_to_be_named(tmp_path, toy, recipe):
    train(lambda recipe: toy(recipe), recipe, out=tmp_path)  # noqa: PLW0108 - has no name
    with pytest.raises(ArgumentError, match=r"Add `--task file\.py:function`"):
        task_of(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "blueprint.json"])
def test_damaged_files_are_explained(trained, file, tmp_path, name):
    for path in trained[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_text("damaged")
    with pytest.raises(ArgumentError, match="or is damaged"):
        rebuild(tmp_path, f"{file}:{trained[0].name}")


def test_code_outside_the_present_folder_is_not_run(trained, monkeypatch, tmp_path):
    folder, _ = trained
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=r"rebuilt\.py`, which is not in the pres"):
        task_of(folder)
    monkeypatch.chdir(folder.parent)
    assert task_of(folder).__name__ == folder.name


def test_code_inside_a_run_is_not_run(make_run, monkeypatch):
    folder = make_run("theirs", task="evil.py:task")
    (folder / "evil.py").write_text("raise SystemExit")
    monkeypatch.chdir(folder.parent)
    with pytest.raises(ArgumentError, match="which is inside that run"):
        task_of(folder)
    with pytest.raises(SystemExit):
        task_of(folder, trust=True)


def test_a_module_is_judged_by_where_its_package_is(make_run, monkeypatch, tmp_path):
    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("def task(recipe): ...")
    folder = make_run("mine", task="theirs:task")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(folder)
    with pytest.raises(ArgumentError, match="theirs`, which is not in the present"):
        task_of(folder)
    monkeypatch.chdir(tmp_path)
    assert task_of(folder).__name__ == "task"


def test_the_tasks_of_diffprune_are_trusted(make_run):
    folder = make_run("ours", task="diffprune.lab.digits:digits_task")
    assert task_of(folder).__name__ == "digits_task"

import time

import torch
from torch import nn

from diffprune.experiment import Recipe, train
from diffprune.report.measure import latencies, measure
from diffprune.report.sources import read_sources

TASK = """
import torch
from torch import nn
from diffprune.experiment import Task
from diffprune.recipes.examples import Batches, Examples

def toy(recipe):
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    data = Examples(inputs, (inputs.sum(dim=1) > 0).long())
    return Task(
        model=nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)),
        train=Batches(data, recipe.batch_size, shuffle=True),
        test=Batches(data, 32),
    )
"""


class Sleep(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, x):
        time.sleep(self.seconds)
        return x


def test_the_clock_tells_slow_from_fast():
    slow, fast = latencies([Sleep(0.01), Sleep(0.002)], torch.zeros(1))
    assert 0.01 <= slow < 0.1
    assert 0.002 <= fast < slow


def test_a_finished_run_is_rebuilt_and_timed(tmp_path):
    file = tmp_path / "task.py"
    file.write_text(TASK)
    from diffprune.experiment.load import load_task

    make_task, _ = load_task(f"{file}:toy")
    recipe = Recipe(name="toy", epochs=2, batch_size=8, strength=1e-1, remove_every=4)
    train(make_task, recipe, out=tmp_path / "run")
    seen = measure(read_sources([tmp_path / "run"]))
    assert "median of 21 rounds" in seen.note
    assert seen.dense.parameters == 4 * 16 + 16 + 16 * 2 + 2
    assert seen.dense.macs == 4 * 16 + 16 * 2
    assert seen.dense.widths == {"0": 16}
    assert 4 * seen.dense.parameters < seen.dense.file_size < 2_000
    assert seen.dense.seconds > 0
    assert seen.seconds["run"] > 0


def test_measuring_leaves_the_random_state_alone(make_run):
    state = torch.get_rng_state()
    measure(read_sources([make_run("digits", task=DIGITS, finished=False)]))
    assert torch.equal(torch.get_rng_state(), state)


def test_an_unfinished_run_has_a_network_before_training(make_run):
    seen = measure(read_sources([make_run("digits", task=DIGITS, finished=False)]))
    assert seen.note == "Latency is measured once a run is finished."
    assert (seen.dense.parameters, seen.dense.macs) == (431_080, 2_293_000)
    assert list(seen.dense.widths.values()) == [20, 50, 800, 500]
    assert seen.dense.file_size > 4 * 431_080


DIGITS = "diffprune.experiment.builtin:lenet5_digits"


def test_a_run_that_does_not_say_where_its_task_is(make_run):
    seen = measure(read_sources([make_run("mine")]))
    assert seen.note == "Latency: no run says where its task is written."
    assert seen.dense is None


def test_a_task_that_is_gone_is_named(make_run):
    seen = measure(read_sources([make_run("mine", task="gone.py:toy")]))
    assert seen.note.startswith("Latency was not measured: there is no file")
    assert "gone.py" in seen.note

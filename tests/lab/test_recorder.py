import sys

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune import lab
from diffprune.errors import ArgumentError
from diffprune.lab.report import write_report
from diffprune.lab.runs.rebuild import rebuild

SOURCE = """
from torch import nn

def my_model():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
"""
RECIPE = lab.Recipe(name="mine", epochs=2, batch_size=8, strength=0.1)


@pytest.fixture
def make_model(tmp_path):
    from diffprune.lab.runs.import_spec import find_callable

    (tmp_path / "recorded.py").write_text(SOURCE)
    yield find_callable(f"{tmp_path / 'recorded.py'}:my_model")
    sys.modules.pop("recorded", None)


def train(model, pruner, recorder):
    inputs = torch.randn(32, 4)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2, gate_lr=0.1))
    for epoch in range(2):
        for _ in range(8):
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            (loss + pruner.penalty()).backward()
            optimizer.step()
        pruner.remove_closed_(optimizer)
        recorder.epoch(
            epoch + 1, loss=loss.item(), test_error=5.0, test_examples=40, steps=8
        )


@pytest.fixture
def recorded(make_model, tmp_path):
    torch.manual_seed(0)
    model = make_model()
    pruner = dp.Pruner(model, torch.randn(3, 4), strength=0.1)
    out = tmp_path / "runs" / "mine"
    with lab.record(pruner, RECIPE, out=out, make_model=make_model) as recorder:
        train(model, pruner, recorder)
        small = pruner.finalize()
        recorder.finish(test_error=4.0, test_examples=40)
    return out, small


def test_a_loop_of_ones_own_leaves_a_run(recorded):
    out, small = recorded
    run = lab.read_run(out)
    width = small[0].out_features
    assert width < 16
    assert [epoch.number for epoch in run.epochs] == [1, 2]
    assert run.epochs[-1].effective == run.outcome.effective == {"0": width}
    assert run.outcome.macs == 4 * width + width * 2
    assert run.outcome.parameters == sum(p.numel() for p in small.parameters())
    assert (run.outcome.test_error, run.outcome.test_examples) == (4.0, 40)
    assert run.worst_certificate().max_relative < 1e-5
    assert run.recipe == RECIPE


def test_its_models_can_be_made_again(recorded):
    out, small = recorded
    models = rebuild(out, trust=True)
    assert models.dense[0].out_features == 16
    assert torch.equal(models.small(models.inputs), small(models.inputs))


@pytest.mark.usefixtures("no_vega")
def test_it_has_a_report(recorded, tmp_path):
    out, _ = recorded
    html = write_report([out], tmp_path / "report.html", trust=True).read_text()
    assert "median of 31 rounds" in html
    assert 'figure id="network"' in html
    assert 'figure id="share-macs"' in html


def test_it_is_finished_after_the_pruner(tmp_path):
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    pruner = dp.Pruner(model, torch.randn(3, 4), strength=0.1)
    with (
        lab.record(pruner, RECIPE, out=tmp_path) as recorder,
        pytest.raises(ArgumentError, match=r"call `small = pruner\.finalize\(\)`"),
    ):
        recorder.finish(test_error=1.0)
    assert lab.read_run(tmp_path).outcome is None


class Twice(nn.Module):
    """A model of two inputs."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 16), nn.Linear(16, 2)

    def forward(self, x, y):
        return self.outer(torch.relu(self.inner(x) + self.inner(y)))


def test_what_can_be_made_again_takes_one_tensor(make_model, tmp_path):
    pruner = dp.Pruner(Twice(), (torch.rand(3, 4), torch.rand(3, 4)), strength=0.1)
    recording = lab.record(pruner, RECIPE, out=tmp_path / "run", make_model=make_model)
    match = r"take one tensor, and this one takes .*\nLeave `make_model` out"
    with pytest.raises(ArgumentError, match=match), recording:
        pass


@pytest.mark.parametrize("inputs", [torch.rand(3, 4), (torch.rand(3, 4),)])
def test_a_function_that_does_not_make_the_model_is_named(make_model, tmp_path, inputs):
    pruner = dp.Pruner(make_model(), inputs, strength=0.1)
    with lab.record(pruner, RECIPE, out=tmp_path, make_model=make_model) as recorder:
        recorder.epoch(1, loss=0.5, test_error=3.0)
        pruner.finalize()
        recorder.finish(test_error=3.0)
    (tmp_path / "other.py").write_text("def task(recipe): ...\ndef none(): ...")
    for name, match in (("task", r"fails: .*\nName a fun"), ("none", "returns NoneT")):
        with pytest.raises(ArgumentError, match=match):
            rebuild(tmp_path, f"{tmp_path}/other.py:{name}")

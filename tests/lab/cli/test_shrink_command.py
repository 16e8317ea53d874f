import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import diffprune as dp

pytestmark = pytest.mark.usefixtures("source")


def fresh():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def trained():
    """Units that matter, two of which are copies of others."""
    torch.manual_seed(1)
    model = fresh()
    with torch.no_grad():
        model[0].weight[4:6] = model[0].weight[:2]
        model[0].bias[4:6] = model[0].bias[:2]
    return model


def test_a_task_becomes_smaller_and_is_written(diffprune, tmp_path):
    done = diffprune("shrink", "mine.py:task", "--budget", "macs=0.5")
    assert done.exit_code == 0, done.stderr
    assert "Written to runs/task-small." in done.stdout
    assert "diffprune.load_pruned" in done.stderr
    small = dp.load_pruned(fresh(), tmp_path / "runs/task-small")
    assert small[0].out_features == 4


def test_json_says_what_was_cut_and_what_it_costs(diffprune, tmp_path):
    done = diffprune(
        "shrink", "mine.py:task", "--budget", "macs=0.5", "--out", "small", "--json"
    )
    found = json.loads(done.stdout)
    assert found["folder"] == "small"
    assert found["costs"] == {"macs": {"whole": 40.0, "allowed": 20.0, "left": 20.0}}
    (group,) = found["groups"]
    assert (group["name"], group["before"], group["after"]) == ("0", 8, 4)
    assert 0 <= found["dense_error"] <= 100
    assert (tmp_path / "small/blueprint.json").exists()


@pytest.mark.parametrize("file", ["weights.pt", "weights.safetensors"])
def test_weights_come_from_a_file(diffprune, tmp_path, file):
    model = trained()
    write = save_file if file.endswith("safetensors") else torch.save
    write(model.state_dict(), tmp_path / file)
    done = diffprune(
        *("shrink", "mine.py:task", "--weights", file, "--budget", "parameters=0.8"),
        *("--out", "small"),
    )
    assert done.exit_code == 0, done.stderr
    small = dp.load_pruned(fresh(), tmp_path / "small")
    x = torch.rand(64, 3)
    with torch.no_grad():  # a copy of another unit is not missed
        torch.testing.assert_close(small(x), model(x), atol=0.05, rtol=0.0)
    assert small[0].out_features < 8


def test_the_network_of_a_run_becomes_smaller(diffprune, tmp_path):
    diffprune("train", "mine.py:task", "--epochs", "1", "--dense", "--out", "runs/big")
    done = diffprune("shrink", "runs/big", "--budget", "macs=0.5", "--json")
    assert done.exit_code == 0, done.stderr
    run = json.loads((tmp_path / "runs/big/summary.json").read_text())
    found = json.loads(done.stdout)
    assert found["folder"] == "runs/big-small"
    assert found["dense_error"] == pytest.approx(run["test_error"])


@pytest.mark.parametrize("name", ["runs/big", "mine.py:task"])
def test_a_run_is_not_overwritten(diffprune, tmp_path, name):
    diffprune("train", "mine.py:task", "--epochs", "1", "--dense", "--out", "runs/big")
    before = {file: file.read_bytes() for file in (tmp_path / "runs/big").iterdir()}
    done = diffprune("shrink", name, "--budget", "macs=0.5", "--out", "runs/big")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "`runs/big` holds a run" in done.stderr
    after = {file: file.read_bytes() for file in (tmp_path / "runs/big").iterdir()}
    assert after == before


def test_layers_can_be_left_alone_and_widths_be_multiples(diffprune):
    options = ["--budget", "macs=0.9", "--round-to", "4", "--no-refit", "--json"]
    found = json.loads(diffprune("shrink", "mine.py:task", *options).stdout)
    assert found["groups"][0]["after"] == 4
    done = diffprune("shrink", "mine.py:task", *options, "--freeze", "0")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "nothing can be removed" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["mine.py:task"], 2, "--budget"),
        (["mine.py:task", "--budget", "speed=2"], 1, "cannot limit `speed`"),
        (["mine.py:task", "--budget", "macs=0.01"], 1, "macs=0.01 cannot be met"),
        (["nobody.py:task", "--budget", "macs=0.5"], 1, "no file `nobody.py`"),
        (["mine.py:task", "--budget", "macs=0.5", "--weights", "none.pt"], 2, "none"),
        (
            ["mine.py:task", "--budget", "macs=0.5", "--weights", "mine.pt"],
            1,
            "mine.pt",
        ),
    ],
)
def test_what_cannot_be_done_is_explained(
    diffprune, tmp_path, arguments, code, message
):
    torch.save({"other": torch.ones(1)}, tmp_path / "mine.pt")
    done = diffprune("shrink", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_run_has_its_own_weights(diffprune, tmp_path):
    torch.save(fresh().state_dict(), tmp_path / "mine.pt")
    (tmp_path / "runs").mkdir()
    done = diffprune("shrink", "runs", "--weights", "mine.pt", "--budget", "macs=0.5")
    assert done.exit_code == 1
    assert "leave out `--weights`" in done.stderr


def test_widths_that_norms_run_over_can_be_left_whole(diffprune):
    options = ("shrink", "mine.py:task", "--budget", "macs=0.5", "--norms")
    assert diffprune(*options, "exact").exit_code == 0
    done = diffprune(*options, "wide")
    assert done.exit_code == 2
    assert "narrow" in done.stderr


def test_batches_that_are_no_pairs_are_refused(diffprune, tmp_path, source):
    changed = source.replace(
        "train=Batches(data, recipe.batch_size, shuffle=True)",
        "train=[{'x': 1, 'y': 2}]",
    )
    (tmp_path / "mine.py").write_text(changed)
    done = diffprune("shrink", "mine.py:task", "--budget", "macs=0.5")
    assert done.exit_code == 1
    assert "as a batch, where a pair of tensors is expected" in done.stderr

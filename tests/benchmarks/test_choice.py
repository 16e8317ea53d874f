from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.choice import gated, hard_concrete, record, table, training
from benchmarks.choice.networks import Reader, ResNet, ViT
from benchmarks.choice.record import Record
from benchmarks.choice.tasks import Data, Task
from diffprune.lab.image_batches import Examples


def cell(method, seed, error, **given):
    return Record(
        **{"kind": "cell", "task": "lenet5", "seed": seed, "method": method}
        | {"target": 0.5, "macs": 0.49, "test_error": error}
        | given
    )


RECORDS = [
    Record(kind="dense", task="lenet5", seed=0, test_error=5.0),
    cell("diffprune", 0, 6.0),
    cell("diffprune", 1, 7.0),
    cell("TP L1 global", 0, 9.0),
    cell("TP L1 global", 1, 8.0),
    cell("TP L2 global", 0, 1.0),  # lacks a seed, so it is no peer of both
    cell("TP L1 global + refit", 0, 6.5),
    cell("TP L1 global + refit", 1, 6.5),
]


def test_the_best_peer_is_compared_seed_by_seed():
    row = table.summary(RECORDS).splitlines()[2]
    assert "| 6.50 ± 0.50 | 8.50 ± 0.50 (L1 global) | -2.00 ± 1.00 |" in row
    assert "| 6.50 ± 0.00 (L1 global) | 0.00 ± 0.50 | 2 | | | |" in row.replace(
        "  ", " "
    )


def test_the_dense_networks_of_a_row_are_those_of_its_seeds():
    other = Record(kind="dense", task="lenet5", seed=2, test_error=50.0)
    assert table.summary([*RECORDS, other]) == table.summary(RECORDS)


def test_a_pruner_is_compared_with_the_same_peer():
    row = table.summary([*RECORDS, cell("diffprune, Pruner", 1, 7.5)]).splitlines()[2]
    assert row.endswith("| 7.50 | -0.50 | 1 |")


def test_a_seed_that_no_peer_has_yet_waits():
    row = table.summary([*RECORDS, cell("diffprune", 2, 60.0)]).splitlines()[2]
    assert row == table.summary(RECORDS).splitlines()[2]


def test_a_network_that_costs_more_than_it_may_does_not_count():
    records = [cell("diffprune", 0, 6.0, macs=0.51), cell("TP L1 global", 0, 9.0)]
    records.append(RECORDS[0])
    row = table.summary(records).splitlines()[2]
    assert "| cannot | 9.00 (L1 global) |" in row
    assert "| diffprune | cannot |" in table.detail(records, "lenet5")


def test_records_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "records.jsonl"
    for one in RECORDS:
        record.append(one, path)
    record.append(cell("diffprune", 0, 3.0), path)  # the newest counts
    found = record.load(path)
    assert found[RECORDS[1].key].test_error == 3.0
    assert [*found] == [one.key for one in RECORDS]


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        (nn.Linear(3, 5), (1, 3), 15),
        (ResNet(), (1, 3, 32, 32), 3_125_888),
        (ViT(), (1, 3, 32, 32), 1_311_360),
        (Reader(), (1, 1, 28, 28), 28 * 4 * 64 * (28 + 64 + 64 + 64) + 640),
    ],
)
def test_multiply_adds_are_those_of_every_layer(model, shape, expected):
    assert training.macs(model, torch.zeros(shape)) == expected


def random_task():
    torch.manual_seed(0)
    images = Examples(torch.randn(640, 1, 4, 4), torch.randint(3, (640,)))
    data = Data(images, images, images)
    return Task(
        "random",
        "noise",
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(16, 40), nn.ReLU(), nn.Linear(40, 3)
        ),
        "3",
        lambda: data,
        is_shifted=False,
        optimizer=lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
        rate=1e-3,
        epochs=10,
    )


@pytest.mark.parametrize("is_pretrained", [True, False])
def test_a_pruner_spends_the_compute_it_is_given(is_pretrained):
    task = random_task()
    made = gated.train(
        task.make(), task, 0, target=0.25, compute=1.0, rate=1e-3,
        is_pretrained=is_pretrained,
    )  # fmt: skip
    assert made.compute == pytest.approx(1.0, abs=0.05)
    assert made.steps > 1.5 * task.steps
    assert made.model[1].out_features == 10


def test_hard_concrete_gates_keep_the_units_that_the_labels_need():
    task = random_task()
    images = task.data().train.images
    labels = (images[:, 0, 0, :3]).argmax(1)
    task = replace(task, data=lambda: Data(*[Examples(images, labels)] * 3))
    torch.manual_seed(0)
    model = task.make()
    training.train_(model, task, 0, 300, 1e-2)
    with torch.no_grad():
        model[3].weight[:, 20:] = 0  # nobody reads these
    found = hard_concrete.cut(model, task, 0, 0.25, steps=100, rate=1e-2)
    whole = training.macs(model, images[:1])
    assert 0.2 < training.macs(found.model, images[:1]) / whole <= 0.25
    assert training.quality(found.model, task.data().test).error < 15
    assert found.charged == 100 * 64


def test_hard_concrete_gates_say_what_they_cannot_reach():
    task = random_task()
    with pytest.raises(RuntimeError, match=r"does not get to 0\.001"):
        hard_concrete.cut(task.make(), task, 0, 0.001, steps=1, rate=1e-2)

"""From a model to a smaller one that is saved, reloaded and exported, in seconds."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import diffprune as dp
from diffprune.errors import MissingPackageError


def make_model() -> nn.Sequential:
    """Far more units than the task needs."""
    return nn.Sequential(
        nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
    )


def train(model: nn.Sequential, points: Tensor, labels: Tensor) -> nn.Sequential:
    """Train while units leave; the lines with a number are all that is new."""
    budget = dp.Budget(macs=0.3, steps=5 * len(points) // 50)
    pruner = dp.Pruner(model, points[:2], budget=budget)  # 1
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=5e-3))
    for _ in range(5):
        for batch in torch.randperm(len(points)).split(50):
            loss = cross_entropy(model(points[batch]), labels[batch])
            optimizer.zero_grad()
            (loss + pruner.penalty()).backward()  # 2
            optimizer.step()
            pruner.step(optimizer)  # 3
    print(pruner.summary())
    return pruner.finalize()


def train_dense(model: nn.Sequential, points: Tensor, labels: Tensor) -> nn.Sequential:
    """Train the whole network for as long, to compare with."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(5):
        for batch in torch.randperm(len(points)).split(50):
            optimizer.zero_grad()
            cross_entropy(model(points[batch]), labels[batch]).backward()
            optimizer.step()
    return model


def error(model: nn.Sequential, points: Tensor, labels: Tensor) -> float:
    """Share of points that are put on the wrong side."""
    return float((model(points).argmax(1) != labels).float().mean())


def main() -> None:
    """Train, compare, save, reload, export."""
    torch.manual_seed(0)
    points, unseen = torch.rand(2000, 8), torch.rand(2000, 8)
    labels, answers = ((x[:, 0] > x[:, 1]).long() for x in (points, unseen))
    dense = train_dense(make_model(), points, labels)
    small = train(make_model(), points, labels)
    print(small)
    print(
        f"error on points it has not seen: {error(small, unseen, answers):.1%}, "
        f"the whole network {error(dense, unseen, answers):.1%}"
    )

    folder = dp.save_pruned(small, "small")
    again = dp.load_pruned(make_model(), folder)
    print(f"reloaded from {folder}/: {torch.equal(again(points), small(points))}")
    try:
        print(f"exported to {dp.to_onnx(small, points[:2], 'small.onnx')}")
    except MissingPackageError as missing:
        print(missing)


if __name__ == "__main__":
    main()

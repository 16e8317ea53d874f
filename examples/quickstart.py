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
    """Train while units leave; the lines with a comment are all that is new."""
    pruner = dp.Pruner(model, points[:2], strength=1e-4, remove_every=20)  # 1
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=5e-3, gate_lr=5e-3))
    for _ in range(5):
        for batch in torch.randperm(len(points)).split(50):
            loss = cross_entropy(model(points[batch]), labels[batch])
            optimizer.zero_grad()
            (loss + pruner.penalty()).backward()  # 2
            optimizer.step()
            pruner.step(optimizer)  # 3
    print(pruner.summary())
    return pruner.finalize()


def main() -> None:
    """Train, save, reload, export."""
    torch.manual_seed(0)
    points = torch.rand(2000, 8)
    labels = (points[:, 0] > points[:, 1]).long()
    small = train(make_model(), points, labels)
    wrong = (small(points).argmax(1) != labels).float().mean()
    print(small, f"training error {wrong:.1%}", sep="\n")

    folder = dp.save_pruned(small, "small")
    again = dp.load_pruned(make_model(), folder)
    print(f"reloaded from {folder}/: {torch.equal(again(points), small(points))}")
    try:
        print(f"exported to {dp.to_onnx(small, points[:2], 'small.onnx')}")
    except MissingPackageError as error:
        print(error)


if __name__ == "__main__":
    main()

"""Train a small network on a spiral while it gets smaller; print how it went."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import diffprune as dp
from diffprune._pruner import RemovalRecord


def spiral(count: int) -> tuple[Tensor, Tensor]:
    """Points on two interleaved arms, and the arm of each."""
    labels = torch.arange(count) % 2
    angle = 4 * torch.rand(count)
    turned = angle + torch.pi * labels
    arms = torch.stack([turned.cos(), turned.sin()], 1) * angle.unsqueeze(1)
    return arms + 0.05 * torch.randn(count, 2), labels


def report(shrinkage: RemovalRecord) -> None:
    """Say what is left after a removal."""
    widths = "-".join(map(str, shrinkage.units.values()))
    print(f"step {shrinkage.step}: {widths}, {shrinkage.parameters:,} parameters")


def main() -> None:
    """Train, shrink, and hand back a plain model."""
    torch.manual_seed(0)
    points, labels = spiral(2000)
    model = nn.Sequential(
        nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
    )
    pruner = dp.Pruner(
        model, points[:2], strength=1e-4, remove_every=40, on_removal=report
    )
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=3e-3, gate_lr=3e-3))
    for _ in range(10):
        for batch in torch.randperm(len(points)).split(50):
            loss = cross_entropy(model(points[batch]), labels[batch])
            optimizer.zero_grad()
            (loss + pruner.penalty()).backward()
            optimizer.step()
            pruner.step(optimizer)
    small = pruner.finalize()
    wrong = (small(points).argmax(1) != labels).float().mean()
    print(small, f"training error {wrong:.1%}", sep="\n")


if __name__ == "__main__":
    main()

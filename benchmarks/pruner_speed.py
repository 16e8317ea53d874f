"""What gates and removal add to a training step, for several networks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import diffprune as dp
from paper.models.lenet5 import LeNet5

from ._timing import Measurement, ratio
from .resnets import resnet18

RECIPE = {
    "what": "forward, backward and optimizer step with automatic gates on every group, "
    "over the same step without; Adam as it comes; one thread",
    "lenet5": "batch 100 of 1x28x28",
    "resnet18": "batch 16 of 3x64x64",
    "transformer": "4 layers, width 256, 8 heads, hidden 1024, batch 16 of 128 tokens",
    "small transformer": "4 layers, width 128, 4 heads, hidden 512, batch 16 of 64 "
    "tokens; measured first, the larger one was added after it missed its target",
}


class _Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Mix over tokens, then over channels."""
        normed = self.norm1(x)
        query, key, value = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, scale=self.scale)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def _transformer(width: int) -> nn.Module:
    blocks = [_Block(width, width // 32) for _ in range(4)]
    return nn.Sequential(nn.Embedding(96, width), *blocks, nn.Linear(width, 96))


@dataclass(frozen=True)
class Case:
    """A network and a batch for it."""

    build: Callable[[], nn.Module]
    x: Tensor
    y: Tensor
    rounds: int


def cases() -> dict[str, Case]:
    """The networks, by name."""
    tokens = torch.randint(96, (16, 128))
    few = tokens[:, :64]
    images, labels = torch.rand(100, 1, 28, 28), torch.randint(10, (100,))
    photos, classes = torch.rand(16, 3, 64, 64), torch.randint(10, (16,))
    return {
        "LeNet-5": Case(LeNet5, images, labels, 200),
        "ResNet-18": Case(resnet18, photos, classes, 60),
        "transformer": Case(partial(_transformer, 256), tokens, tokens.roll(-1, 1), 40),
        "small transformer": Case(partial(_transformer, 128), few, few.roll(-1, 1), 60),
    }


def make_step(case: Case, *, gated: bool) -> Callable[[], None]:
    """A training step of a fresh network."""
    model = case.build()
    pruner = dp.Pruner(model, case.x[:2], strength=1e-5) if gated else None
    return loop(model, case.x, case.y, pruner)


def loop(
    model: nn.Module, x: Tensor, y: Tensor, pruner: dp.Pruner[nn.Module] | None
) -> Callable[[], None]:
    """A training step of a network, gated or not."""
    groups = pruner.parameter_groups(lr=1e-4) if pruner else model.parameters()
    optimizer = torch.optim.Adam(groups, lr=1e-4)

    def step() -> None:
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        if pruner:
            loss = loss + pruner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if pruner:
            pruner.step(optimizer)

    return step


def _shrunk(x: Tensor, *, gated: bool) -> tuple[nn.Module, dp.Pruner[nn.Module] | None]:
    """LeNet-5 cut to 10-20-320-87, still gated or plain."""
    torch.manual_seed(0)
    model: nn.Module = LeNet5()
    pruner = dp.Pruner(model, x[:2], strength=1e-5)
    for name, kept in {"conv1": 10, "conv2": 20, "fc1": 87}.items():
        with torch.no_grad():
            pruner.gates[name].logits[kept:] = -5.0
    pruner.remove_closed_()
    return (model, pruner) if gated else (pruner.finalize(), None)


def _idle_step(case: Case) -> Measurement:
    """`pruner.step` when nothing is due, a thousand times over, over a dense step."""
    model: nn.Module = LeNet5()
    pruner = dp.Pruner(
        model, case.x[:2], remove_every=lambda _step: False, strength=1e-5
    )
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-4))

    def idle() -> None:
        for _ in range(1000):
            pruner.step(optimizer)

    names = ("1000 x pruner.step, nothing due", "LeNet-5 step, dense")
    dense = make_step(case, gated=False)
    return ratio(idle, dense, names=names, rounds=20, target=5.0)


def _after_removal(x: Tensor, y: Tensor) -> Measurement:
    gated = loop(*_with(_shrunk(x, gated=True), x, y))
    plain = loop(*_with(_shrunk(x, gated=False), x, y))
    name = "LeNet-5 at 10-20-320-87"
    names = (f"{name}, gated", f"{name}, plain")
    return ratio(gated, plain, names=names, rounds=200, target=1.10)


def _with(
    made: tuple[nn.Module, dp.Pruner[nn.Module] | None], x: Tensor, y: Tensor
) -> tuple[nn.Module, Tensor, Tensor, dp.Pruner[nn.Module] | None]:
    return made[0], x, y, made[1]


def measure() -> tuple[Measurement, ...]:
    """Gated over dense: steps, idle steps, and steps after a removal."""
    torch.manual_seed(0)
    found = list[Measurement]()
    for name, case in cases().items():
        gated, dense = (make_step(case, gated=flag) for flag in (True, False))
        names = (f"{name} step, gated", f"{name} step, dense")
        found.append(ratio(gated, dense, names=names, rounds=case.rounds, target=1.03))
    lenet = cases()["LeNet-5"]
    return (*found, _idle_step(lenet), _after_removal(lenet.x, lenet.y))

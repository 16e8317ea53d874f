"""Whether widths that norms run over should shrink: five networks on digits.

`dp.shrink` without training, once with `norms="exact"`, which leaves those widths
whole, and once with `norms="narrow"`. `python -m benchmarks.narrow_norms` trains and
cuts everything, minutes on one core, and prints the table. Errors are those of digits
that were held out for choosing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Final, Literal, final

import torch
from torch import Tensor, nn, optim
from torch.nn.functional import cross_entropy, gelu

import diffprune as dp
from diffprune._core.interleaved import one_thread
from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Examples
from paper.records import read_results

from ._command import command
from ._records import RESULTS, write

RECORD: Final = RESULTS / "narrow_norms.json"
COMMAND: Final = "python -m benchmarks.narrow_norms"
EPOCHS: Final = 15
BATCH: Final = 50
LR: Final = 2e-3
PARTS: Final = (0.5, 0.25)
SEEDS: Final = (0, 1, 2)
NORMS: Final[tuple[Literal["exact", "narrow"], ...]] = ("exact", "narrow")
_PIXELS: Final = 28


@final
class Encoder(nn.Module):
    """A transformer that reads rows, with its norms before or behind its blocks."""

    def __init__(self, *, norm_first: bool) -> None:
        super().__init__()
        self.embed = nn.Linear(_PIXELS, 32)
        self.positions = nn.Parameter(0.1 * torch.randn(_PIXELS, 32))
        layer = nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, batch_first=True, norm_first=norm_first
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores before the softmax."""
        tokens = self.embed(images.squeeze(1)) + self.positions
        return self.head(self.norm(self.layers(tokens)).mean(1))


@final
class Blocks(nn.Module):
    """Depthwise convolutions, layer norms and perceptrons beside a stream."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 4, stride=4)
        self.spread = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1, groups=width) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(2))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores before the softmax."""
        x = self.stem(images)
        layers = zip(self.spread, self.norms, self.up, self.down, strict=True)
        for spread, norm, up, down in layers:
            y = norm(spread(x).permute(0, 2, 3, 1))
            x = x + down(gelu(up(y))).permute(0, 3, 1, 2)
        return self.head(x.mean((2, 3)))


def _perceptron() -> nn.Module:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(_PIXELS**2, 96), nn.LayerNorm(96), nn.ReLU()),
        *(nn.Linear(96, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 10)),
    )


def _convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 24, 3, stride=2), nn.GroupNorm(6, 24), nn.ReLU()),
        *(nn.Conv2d(24, 32, 3, stride=2), nn.GroupNorm(8, 32), nn.ReLU()),
        *(nn.Conv2d(32, 48, 3, stride=2), nn.GroupNorm(1, 48), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10)),
    )


NETWORKS: Final[dict[str, Callable[[], nn.Module]]] = {
    "transformer, norms first": lambda: Encoder(norm_first=True),
    "transformer, norms last": lambda: Encoder(norm_first=False),
    "depthwise blocks, layer norm": Blocks,
    "convolutions, group norm": _convolutions,
    "perceptron, layer norm": _perceptron,
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One network, cut once.

    Attributes:
        network: Its name.
        seed: Of weights and data.
        part: Of the multiply-adds that may be left.
        norms: Whether widths under norms were cut.
        dense: Error of the whole network on held-out digits, in per cent.
        error: That of the small one; None if the budget cannot be met.
    """

    network: str
    seed: int
    part: float
    norms: str
    dense: float
    error: float | None


def run(network: str, seed: int) -> Iterator[Result]:
    """Train one network, and cut it in all ways."""
    torch.manual_seed(seed)
    data = load_digits()
    assert data.validation is not None  # noqa: S101 - the digits have one
    model = NETWORKS[network]()
    _train_(model, data.train)
    pairs = (data.train.images.split(64), data.train.labels.split(64))
    batches = list(zip(*pairs, strict=True))
    dense = _error(model, data.validation)
    for part in PARTS:
        for norms in NORMS:
            try:
                budget = dp.Budget(macs=part)
                small = dp.shrink(model, batches, cross_entropy, budget, norms=norms)
                error = _error(small, data.validation)
            except dp.errors.ArgumentError:
                error = None
            yield Result(
                network=network,
                seed=seed,
                part=part,
                norms=norms,
                dense=dense,
                error=error,
            )


def _train_(model: nn.Module, data: Examples) -> None:
    optimizer = optim.AdamW(model.parameters(), LR)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(data)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(data.images[batch]), data.labels[batch]).backward()
            optimizer.step()
    model.eval()


@torch.no_grad()
def _error(model: nn.Module, data: Examples) -> float:
    wrong = model.eval()(data.images).argmax(1) != data.labels
    return round(100 * float(wrong.float().mean()), 2)


def read(path: Path = RECORD) -> list[Result]:
    """What is recorded.

    Raises:
        ArgumentError: If there is no record.
    """
    return read_results(path, COMMAND, Result)


def means(found: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Errors of each network: whole, then for every part exact and narrow."""
    for name in NETWORKS:
        mine = [r for r in found if r.network == name]
        ways = [(part, norms) for part in PARTS for norms in NORMS]
        cells = [[r.error for r in mine if (r.part, r.norms) == way] for way in ways]
        yield name, _mean([r.dense for r in mine]), *map(_mean, cells)


def _mean(errors: Sequence[float | None]) -> str:
    known = [error for error in errors if error is not None]
    return f"{fmean(known):.2f}" if known else "cannot"


def main() -> None:
    """Train and cut all, write the record, print the means."""
    with one_thread():
        found = [r for name in NETWORKS for seed in SEEDS for r in run(name, seed)]
    recipe = {"epochs": EPOCHS, "batch": BATCH, "lr": LR, "optimizer": "AdamW"}
    write(RECORD, COMMAND, recipe=recipe, results=[asdict(one) for one in found])
    for row in means(found):
        print(", ".join(row))
    print(f"Record written to {RECORD}.")


if __name__ == "__main__":
    command(__doc__).parse_args()
    main()

"""Whether strengths should know what units are worth: a perceptron on digits.

The paper's rule pushes all units of a layer alike. Here each unit is also pushed in
inverse proportion to what it is worth, with the same mean over the layer.
`python -m benchmarks.worth_strengths` trains all combinations, minutes on one core,
and prints the table. Errors are those of digits that were held out for choosing.
"""

from dataclasses import asdict, dataclass
from typing import Final

import torch
from torch import Tensor, nn, optim
from torch.nn.functional import cross_entropy

import diffprune as dp
from diffprune._core.interleaved import one_thread
from diffprune.lab.digits import load_digits

from ._command import command
from ._records import RESULTS, write

RECORD: Final = RESULTS / "worth_strengths.json"
COMMAND: Final = "python -m benchmarks.worth_strengths"
STEPS: Final = 1200
BATCH: Final = 50
LR: Final = 2e-3
STRENGTHS: Final = (1e-4, 3e-4, 1e-3, 3e-3)
SEEDS: Final = (0, 1, 2)
_MOST: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run.

    Attributes:
        rule: `paper`, or `worth`.
        strength: Of all gates.
        seed: Of weights and data.
        units: Left of 64 and 64.
        macs: Left, as a part.
        error: Of held-out digits, in percent.
    """

    rule: str
    strength: float
    seed: int
    units: tuple[int, ...]
    macs: float
    error: float


def pushed(pruner: dp.Pruner[nn.Sequential], strength: float) -> Tensor:
    """The penalty with units weighed by the inverse of their worth."""
    total = torch.zeros(())
    for name, worth in pruner.worth.items():
        share = worth.float() / worth.mean().clamp(min=1e-12).float()
        weights = 1 / (share + 1 / _MOST)
        weights = weights / weights.mean()
        total = total + (weights * pruner.gates[name].prob_open()).sum()
    return strength * total


def run(rule: str, strength: float, seed: int) -> Result:
    """Train once."""
    torch.manual_seed(seed)
    data = load_digits()
    assert data.validation is not None  # noqa: S101 - the digits have one
    images, labels = data.train.images, data.train.labels
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(images[0].numel(), 64),
        *(nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    pruner = dp.Pruner(model, images[:4], strength=strength, remove_every=50)
    optimizer = optim.Adam(pruner.parameter_groups(lr=LR))
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = LR * (1 - step / STEPS)
        batch = torch.randint(len(images), (BATCH,))
        loss = cross_entropy(model(images[batch]), labels[batch])
        by_worth = rule == "worth" and step > 0
        loss = loss + (pushed(pruner, strength) if by_worth else pruner.penalty())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pruner.step(optimizer)
    dense, left = pruner.dense.macs, pruner.shape()
    small = pruner.finalize().eval()
    with torch.no_grad():
        wrong = small(data.validation.images).argmax(1) != data.validation.labels
    return Result(
        rule=rule,
        strength=strength,
        seed=seed,
        units=tuple(left.units.values()),
        macs=round(left.macs / dense, 4),
        error=round(100 * float(wrong.float().mean()), 2),
    )


def main() -> None:
    """Train all, write the record, print the means."""
    with one_thread():
        found = [
            run(rule, strength, seed)
            for strength in STRENGTHS
            for rule in ("paper", "worth")
            for seed in SEEDS
        ]
    recipe = {"steps": STEPS, "batch": BATCH, "lr": LR, "optimizer": "Adam"}
    write(RECORD, COMMAND, recipe=recipe, results=[asdict(one) for one in found])
    for strength in STRENGTHS:
        for rule in ("paper", "worth"):
            mine = [r for r in found if (r.rule, r.strength) == (rule, strength)]
            macs = sum(r.macs for r in mine) / len(mine)
            error = sum(r.error for r in mine) / len(mine)
            print(f"{strength:g} {rule}: {macs:.3f} of the MACs, {error:.2f} % error")


if __name__ == "__main__":
    command(__doc__).parse_args()
    main()

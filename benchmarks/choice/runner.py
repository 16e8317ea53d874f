"""Makes what the table needs and has no record yet: can be stopped at any time.

First all that needs no training; then short and long training, seed by seed. Trained
networks are kept under build/choice, so that a chosen learning rate is not run twice.
"""

import hashlib
import time
import warnings
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from benchmarks.choice import gated, hard_concrete, ours, peer, record
from benchmarks.choice.methods import compared, maker
from benchmarks.choice.names import BY_HAND, CONCRETE, GATED, GATED_SCRATCH, LASSO
from benchmarks.choice.record import Record
from benchmarks.choice.tasks import BATCH, RATES, TASKS, Task
from benchmarks.choice.training import macs, quality, train_
from diffprune.errors import DiffpruneError
from paper.records import ROOT

SEEDS: Final = (0, 1, 2)
COMPUTES: Final = (0.25, 1.0)
SCREEN_TARGET: Final = 0.25
SCREEN_COMPUTE: Final = 1 / 16
RATE_TARGET: Final = 0.25
RATE_COMPUTE: Final = 0.25
KEPT_PEERS: Final = 3
_FOLDER: Final = ROOT / "build" / "choice"
_SPARSE: Final = {LASSO: peer.sparse_cut, CONCRETE: hard_concrete.cut}


@dataclass(frozen=True)
class Part:
    """A part of the table; what is empty is not confined.

    Attributes:
        tasks: Names of tasks.
        methods: Names of methods.
        targets: Parts of the multiply-adds.
        seeds: Seeds; if given, others than the usual ones, too.
        computes: Parts of the pretraining's compute that training takes.
    """

    tasks: Collection[str] = ()
    methods: Collection[str] = ()
    targets: Collection[float] = ()
    seeds: Collection[int] = ()
    computes: Collection[float] = ()

    def has(self, asked: Record) -> bool:
        """Whether a cell is in it."""
        wanted = (
            (self.methods, asked.method),
            (self.targets, asked.target),
            (self.seeds, asked.seed),
            (self.computes, asked.compute),
        )
        return all(not some or one in some for some, one in wanted)


def run(part: Part) -> None:
    """Make all that is missing of a part of the table."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # Torch-Pruning's own, and torch's about oneDNN
    seeds = part.seeds or SEEDS
    free = [(seed, 0.0) for seed in seeds]
    trained = [(seed, compute) for seed in seeds for compute in COMPUTES]
    for seed, compute in [*free, *trained]:
        for asked in _cells(part.tasks or TASKS, seed, compute):
            if part.has(asked):
                _measured(asked)


def _cells(names: Collection[str], seed: int, compute: float) -> Iterator[Record]:
    for task in (TASKS[name] for name in names):
        _measured(Record(kind="dense", task=task.name, seed=seed))
        methods = compared(_screened(task), compute)
        for target in task.targets:
            for method in methods:
                yield Record(
                    kind="cell",
                    task=task.name,
                    seed=seed,
                    method=method,
                    target=target,
                    compute=compute,
                )


def _screened(task: Task) -> list[str]:
    """The peers that are best on held-out images after short training, best first."""
    asked = [
        Record(
            kind="screen",
            task=task.name,
            seed=SEEDS[0],
            method=name,
            target=SCREEN_TARGET,
            compute=SCREEN_COMPUTE,
        )
        for name in peer.WAYS
    ]
    found = [_measured(one) for one in asked]
    usable = [one for one in found if not one.failed]
    best = sorted(usable, key=lambda one: one.held_out_loss or 0.0)
    return [one.method for one in best[:KEPT_PEERS]] or [*BY_HAND]


def _rate(asked: Record) -> float:
    """The learning rate of a method: the best of three on held-out images.

    It is chosen on the first seed, one target and short training.
    """
    base = replace(
        asked,
        kind="rate",
        seed=SEEDS[0],
        target=RATE_TARGET,
        compute=RATE_COMPUTE,
    )
    found = [_measured(replace(base, rate=rate)) for rate in RATES]
    return min(found, key=lambda one: one.held_out_loss or torch.inf).rate


def _measured(asked: Record) -> Record:
    """The record of what is asked for, made if there is none."""
    known = record.load()
    if asked.key in known:
        return known[asked.key]
    if asked.kind == "cell" and asked.compute:
        asked = replace(asked, rate=_rate(asked))
    try:
        made = _made(asked)
    except (peer.CannotError, DiffpruneError, RuntimeError, LookupError) as error:
        made = replace(asked, failed=f"{type(error).__name__}: {error}"[:300])
    record.append(made)
    print(_line(made), flush=True)
    return made


def _made(asked: Record) -> Record:
    task = TASKS[asked.task]
    if asked.kind == "dense":
        model, done = _dense(task, asked.seed), asked
    else:
        model, done = _small(task, asked)
    data = task.data()
    if asked.kind in {"dense", "cell"}:
        test = quality(model, data.test)
        return replace(done, test_error=test.error, test_loss=test.loss)
    held_out = quality(model, data.held_out)
    return replace(done, held_out_error=held_out.error, held_out_loss=held_out.loss)


@cache
def _dense(task: Task, seed: int) -> nn.Module:
    path = _FOLDER / f"{task.name}-{seed}.pt"
    if path.exists():
        return torch.load(path, weights_only=False)
    torch.manual_seed(seed)
    model = task.make()
    train_(model, task, seed, task.steps, task.rate)
    _save(model, path)
    return model


def _small(task: Task, asked: Record) -> tuple[nn.Module, Record]:
    """A smaller network, trained as long as asked, and what that took."""
    path = _FOLDER / f"{_digest(asked)}.pt"
    if path.exists():
        model, figures = torch.load(path, weights_only=False)
        return model, replace(asked, **figures)
    whole = _dense(task, asked.seed)
    if asked.method in {GATED, GATED_SCRATCH}:
        model, figures = _gated(whole, task, asked)
    elif asked.method in _SPARSE:
        model, figures = _trained(_sparse(whole, task, asked), whole, task, asked)
    else:
        cut = maker(asked.method)(whole, task, asked.seed, asked.target)
        model, figures = _trained(cut, whole, task, asked)
    if figures["steps"]:
        _save((model, figures), path)
    return model, replace(asked, **figures)


def _gated(
    whole: nn.Module, task: Task, asked: Record
) -> tuple[nn.Module, dict[str, Any]]:
    """What a pruner makes of a network while it trains."""
    made = gated.train(
        whole,
        task,
        asked.seed,
        target=asked.target,
        compute=asked.compute,
        rate=asked.rate * task.rate,
        is_pretrained=asked.method == GATED,
    )
    return made.model, {
        "macs": _part(made.model, whole, task),
        "steps": made.steps,
        "charged": made.charged,
        "seconds": round(made.seconds, 2),
        "recipe": {**_recipe(task), "compute": round(made.compute, 4)},
    }


def _part(model: nn.Module, whole: nn.Module, task: Task) -> float:
    image = task.data().train.images[:1]
    return macs(model, image) / macs(whole, image)


def _sparse(whole: nn.Module, task: Task, asked: Record) -> ours.Cut:
    """What is cut after half of the compute went into a sparse network."""
    return _SPARSE[asked.method](
        whole,
        task,
        asked.seed,
        asked.target,
        steps=round(asked.compute * task.steps / 2),
        rate=asked.rate * task.rate,
    )


def _trained(
    cut: ours.Cut, whole: nn.Module, task: Task, asked: Record
) -> tuple[nn.Module, dict[str, Any]]:
    """What was cut, trained as long as asked."""
    part = _part(cut.model, whole, task)
    images = asked.compute * task.examples - cut.charged
    steps = max(0, int(images / part / BATCH)) if asked.compute else 0
    start = time.process_time()
    if steps:
        # Torch crashes on strided 1x1 convolutions of few channels that lie last.
        cut.model.to(memory_format=torch.contiguous_format)
        # Other data than in the pretraining comes first, the same for all methods.
        rate = asked.rate * task.rate
        train_(cut.model, task, 100 + asked.seed, steps, rate)
    seconds = cut.seconds + time.process_time() - start
    return cut.model, {
        "macs": part,
        "steps": steps,
        "charged": cut.charged,
        "seconds": round(seconds, 2),
        "recipe": _recipe(task),
    }


def _digest(asked: Record) -> str:
    """A name for what is asked for, whether to screen, to choose or for the table."""
    text = repr(sorted(asdict(replace(asked, kind="")).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _recipe(task: Task) -> dict[str, object]:
    data = task.data()
    return {
        "train": len(data.train),
        "held_out": len(data.held_out),
        "test": len(data.test),
        "batch": BATCH,
        "pretraining_steps": task.steps,
        "pretraining_rate": task.rate,
        "rates": RATES,
    }


def _save(content: object, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)


def _line(made: Record) -> str:
    error = made.held_out_error if made.test_error is None else made.test_error
    outcome = made.failed or f"{error:.2f} %, {made.seconds:.1f} s"
    what = f"{made.kind} {made.task} {made.seed} {made.target:g} {made.compute:g}"
    return f"{what} {made.method} x{made.rate:g}: {outcome}"

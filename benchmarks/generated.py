"""Cut thousands of random networks: is each exact, or refused with a reason?

    PYTHONPATH=tests python -m benchmarks.generated --stop 20000

Every second network has layers that are used twice, views that are written through,
and blocks that do something else in training. Outputs are compared in eval and in train
mode, on the example and on other inputs; `compact` of the masked network is compared
with it, too. Of ten masked networks nine are compacted by the groups that are known
already, one finds them again.
Writes results/generated/record.json after every hundred networks, so that an honest
count is there at any time; started again at the same commit it goes on from there.
"""

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffprune._graph import Groups, find_groups
from diffprune._surgery import compact, compaction_of_groups, mask, removal
from diffprune.errors import DiffpruneError
from diffprune.testing.outcomes import is_deterministic, other_inputs, returned
from generator import random_network

from ._command import command
from ._records import RESULTS, commit, write as write_figures

RECORD = RESULTS / "generated" / "record.json"
CHUNK = 100
TOLERANCE = 1e-10
KEPT = 0.6
TRACED_AGAIN = 10


@dataclass(frozen=True)
class Outcome:
    """What became of one network."""

    seed: int
    verdict: str
    groups: int = 0
    reason: str = ""


@dataclass
class Tally:
    """What became of the networks so far."""

    start: int
    stop: int
    commit: str
    done: int = 0
    verdicts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("exact", "refused", "wrong", "crashed"), 0
        )
    )
    groups: int = 0
    without_groups: int = 0
    others: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Count them; remember each that is not exact."""
        for outcome in outcomes:
            self.done += 1
            self.verdicts[outcome.verdict] += 1
            self.groups += outcome.groups
            if outcome.verdict != "exact":
                self.others.append(asdict(outcome))
            elif not outcome.groups:
                self.without_groups += 1


def check(seed: int) -> Outcome:
    """Cut all groups of one random network at random and compare the outputs."""
    model, x = random_network(seed, shares=seed % 2 == 1)
    try:
        groups = find_groups(model, x)
        keep = random_masks(groups, seed)
        small = removal(model, x, groups, keep=keep).model
        masked = mask(model, groups, keep)
        compacted = (
            compact(masked, x)
            if seed % TRACED_AGAIN == 0
            # Zeros change no groups; tracing is what takes longest here.
            else compaction_of_groups(masked, x, groups).model
        )
    except DiffpruneError as error:
        return Outcome(seed, "refused", reason=_reason(error))
    except Exception as error:  # noqa: BLE001 - crashes are what this looks for
        return Outcome(seed, "crashed", reason=_reason(error))
    same = is_equal(small, masked, x, modes=(False, True))
    same &= is_equal(compacted, masked, x, modes=(False,))
    return Outcome(seed, "exact" if same else "wrong", len(groups))


def random_masks(groups: Groups, seed: int) -> dict[str, Tensor]:
    """For each group a mask that keeps some of the units, and at least one."""
    draw = torch.Generator().manual_seed(seed)
    masks = {g.name: torch.rand(g.size, generator=draw) < KEPT for g in groups}
    for kept in masks.values():
        kept[torch.randint(len(kept), (1,), generator=draw)] = True
    return masks


def is_equal(
    small: nn.Module, masked: nn.Module, x: Tensor, *, modes: Sequence[bool]
) -> bool:
    """Whether both compute the same, by another comparison than certificates use.

    In these modes of training, on the example, on other inputs and on more of them.
    """
    others = (x, other_inputs(x, seed=1), 2 * other_inputs(torch.cat([x, x]), seed=2))
    return all(
        _is_equal_on(inputs, small, masked, training=training)
        for training in modes
        for inputs in others
    )


def _is_equal_on(
    inputs: Tensor, small: nn.Module, masked: nn.Module, *, training: bool
) -> bool:
    models = (small, masked)
    (one,), (other,) = (returned(model, inputs, training=training) for model in models)
    difference = (one - other).abs().max() / other.abs().max().clamp(min=1.0)
    # What a forward draws in train mode depends on its width; then there is nothing to
    # compare. Whether it draws anything may depend on the inputs.
    return bool(difference <= TOLERANCE) or (
        training and not is_deterministic(masked, inputs, training=True)
    )


def run(tally: Tally, record: Path, processes: int) -> None:
    """Check what is missing, a chunk at a time, and write the count after each."""
    first = range(tally.start + tally.done, tally.stop, CHUNK)
    chunks = [range(at, min(at + CHUNK, tally.stop)) for at in first]
    # Workers are replaced now and then: tracing leaks a little memory.
    with get_context("spawn").Pool(processes, _prepare, maxtasksperchild=10) as pool:
        for outcomes in pool.imap(_check_all, chunks):
            tally.add(outcomes)
            write(tally, record)
            print(
                f"{tally.done} of {tally.stop - tally.start}: {tally.verdicts}",
                flush=True,
            )


def write(tally: Tally, record: Path) -> None:
    """Write the count so far; the record is never half written."""
    command = f"PYTHONPATH=tests python -m benchmarks.generated --stop {tally.stop}"
    write_figures(
        record,
        command + (f" --start {tally.start}" if tally.start else ""),
        tolerance=TOLERANCE,
        reasons=Counter(other["reason"] for other in tally.others),
        **asdict(tally),
    )


def resume(start: int, stop: int, record: Path) -> Tally:
    """The count of an earlier run over the same seeds at the same commit, or zero."""
    fresh = Tally(start, stop, commit())
    if not record.exists():
        return fresh
    data = json.loads(record.read_text(encoding="utf-8"))
    if (data["start"], data["commit"]) != (fresh.start, fresh.commit):
        return fresh
    return Tally(**{name: data[name] for name in vars(fresh)} | {"stop": stop})


def _check_all(seeds: range) -> list[Outcome]:
    return [check(seed) for seed in seeds]


def _prepare() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def main(arguments: Mapping[str, Any]) -> None:
    """Run what the command line asks for."""
    record = arguments["record"]
    tally = resume(arguments["start"], arguments["stop"], record)
    run(tally, record, arguments["processes"])


if __name__ == "__main__":
    parser = command(__doc__)
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--stop", type=int, default=20_000, help="one after the last")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--record", type=Path, default=RECORD)
    main(vars(parser.parse_args()))

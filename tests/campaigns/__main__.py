"""Run the whole campaign: `python -m tests.campaigns`, or some of its parts by name.

Parts: calls, commands, damage, faults, exceptions, kills. Prints what failed, and
writes one record per part under results/campaigns/. `--share 0.1` makes a tenth of the
calls, commands, faults, exceptions and kills, drawn with a seed.
"""

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks._command import command, one_of
from benchmarks._records import RESULTS, write
from tests.campaigns import bad_calls, commands, damage, faults, injection, kills
from tests.campaigns.scenes import SCENES

SEED = 0
FLIPS = 200
KILLS = 40
Found = tuple[Counter[str], list[str]]


def _drawn(things: Iterable[Any], share: float) -> list[Any]:
    every = list(things)
    number = max(1, round(share * len(every)))
    return random.Random(SEED).sample(every, number)  # noqa: S311 - no secret


def calls(folder: Path, share: float) -> Found:
    """Bad arguments of public functions."""
    counts, failures = Counter[str](), list[str]()
    for call in _drawn(bad_calls.spoilt_calls(folder), share):
        verdict = bad_calls.judge(call, folder)
        counts[verdict.kind] += 1
        if not verdict.is_good:
            failures.append(f"{call}: {verdict.kind}: {verdict.message}")
    return counts, failures


def typed(folder: Path, share: float) -> Found:
    """Bad words in commands."""
    commands.prepare(folder)
    counts, failures = Counter[str](), list[str]()
    for one in _drawn(commands.typed_commands(), share):
        kind, said = commands.judge(one, folder)
        counts[kind] += 1
        if kind not in {"refused", "accepted"}:
            failures.append(f"{one}: {kind}: {said}")
    return counts, failures


def damaged(folder: Path, share: float) -> Found:
    """Flipped, truncated and swapped files; never a part of them."""
    del share
    counts, failures = Counter[str](), list[str]()
    for name in damage.FORMATS:
        patient = damage.Patient(name, folder)
        found = {
            "flips": patient.each(damage.flips(patient, FLIPS, SEED)),
            "truncations": patient.each(damage.truncations(patient, 20)),
            "swaps": patient.each(damage.swaps(patient, folder)),
        }
        for kind, verdicts in found.items():
            counts.update({f"{name}, {kind}, {v}": n for v, n in verdicts.items()})
            bad = verdicts.keys() - {"refused", "same"}
            failures += [f"{name}, {kind}: {verdict}" for verdict in bad]
    return counts, failures


def faulty(folder: Path, share: float) -> Found:
    """A disk that refuses at each of its duties, with each error."""
    counts, failures = Counter[str](), list[str]()
    for name in faults.SAVES:
        number, is_reached = 0, True
        while is_reached:
            code = faults.ERRORS[number % len(faults.ERRORS)]
            place = folder / f"{name}-{number}"
            verdict, is_reached = faults.strike(name, place, number, code)
            counts[f"{name}, {verdict}"] += 1
            if verdict not in {"refused", "written"}:
                failures.append(f"{name}, duty {number}: {verdict}")
            number += 1 if share == 1 else round(1 / share)
    return counts, failures


def exceptions(folder: Path, share: float) -> Found:
    """An exception at every call of a construction, a removal and a load."""
    del folder
    counts, failures = Counter[str](), list[str]()
    for name, scene in SCENES.items():
        _, action = scene()
        sites, _ = injection.call_sites(action)
        roots, action = scene()
        around = injection.process_wide()
        for number in sorted(_drawn(sites, share)):
            before = injection.everything(*roots)
            if not injection.run_injected(action, number):
                roots, action = scene()
                continue
            changed = injection.difference(before, injection.everything(*roots))
            if injection.process_wide() != around:
                changed = changed or "what belongs to the whole process"
            counts[f"{name}, {'changed' if changed else 'as before'}"] += 1
            if changed:
                failures.append(f"{name}, call {number}: {changed}")
                roots, action = scene()
    return counts, failures


def killed(folder: Path, share: float) -> Found:
    """A training that dies at random moments, and goes on."""
    found = kills.killed_runs(folder, max(1, round(KILLS * share)), SEED)
    bad = [f"{n} {what}" for what in ("other weights", "failed") if (n := found[what])]
    return Counter(found), bad


PARTS: dict[str, Callable[[Path, float], Found]] = {
    "calls": calls,
    "commands": typed,
    "damage": damaged,
    "faults": faulty,
    "exceptions": exceptions,
    "kills": killed,
}


def main(parts: Iterable[str], share: float) -> bool:
    """Run some parts, or a share of each; whether anything failed."""
    has_failed = False
    for name in parts:
        start = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            counts, failures = PARTS[name](Path(folder), share)
        seconds = round(time.process_time() - start, 1)
        print(f"{name}: {dict(counts)}, {seconds} s of the processor")  # noqa: T201 - a command
        print(*failures, sep="\n")  # noqa: T201 - a command
        _record(name, share, counts, failures, seconds)
        has_failed |= bool(failures)
    return has_failed


def _record(
    name: str, share: float, counts: Counter[str], failures: list[str], seconds: float
) -> None:
    shared = "" if share == 1 else f" --share {share:g}"
    write(
        RESULTS / "campaigns" / f"{name}.json",
        f"python -m tests.campaigns {name}{shared}",
        recipe={"seed": SEED, "share": share, "what": PARTS[name].__doc__},
        counts=dict(sorted(counts.items())),
        failures=failures,
        processor_seconds=seconds,
    )


if __name__ == "__main__":
    parser = command(__doc__)
    parser.add_argument("parts", nargs="*", type=one_of(PARTS), metavar="PART")
    parser.add_argument("--share", type=float, default=1.0, help="of all there is")
    given = parser.parse_args()
    sys.exit(main(given.parts or PARTS, given.share))

"""Records as tables, for the terminal and as Markdown; measures nothing."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.table import Table

from benchmarks.coverage.record import Record
from benchmarks.coverage.verdict import Status

Row = tuple[str, ...]
COLUMNS = ("result", "groups", "parameters", "MACs", "seconds")
EMPTY = ("",) * len(COLUMNS)
TOTALS_HEADER = ("zoo", "library", *Status, "models")
INTRODUCTION = """\
# Which architectures can be pruned exactly

Written by `make coverage`; the measurements are in `records.jsonl`.

Every model has random weights, scrambled norms and biases, and runs in float64. A
random 30 % of every group is removed. **Exact**: the smaller model computes the same
function as the original with the removed parameter slices set to zero, to 1e-5 of the
largest output: on the example, on other inputs, and in train mode where that draws no
numbers but for dropout, which is switched off. (Older rows, all of Torch-Pruning's
among them, are of the example in eval mode alone; a sentence below the totals counts
the others.) **Wrong**: it runs and computes something else.
**Refused**: the library declined or found nothing. **Crashed**: an error, there or in
the smaller model. **Timeout**, **memory**: beyond the limits of a run.

Torch-Pruning gets one recipe for all, built from its own examples; for families without
an example a crash may be the fault of the recipe. Models that have no record yet are
missing from the table; the command runs them.

Shares are of all parameters and multiply-accumulates: those in tensors and operations
that became smaller. Seconds are of one core, for finding and removing.
"""


def totals(records: Sequence[Record]) -> list[Row]:
    """How often each status occurs, for each zoo and library, and over all zoos."""
    counts: dict[tuple[str, str], Counter[Status]] = {}
    for overall in (False, True):
        for r in records:
            place = ("all" if overall else r.zoo, r.library)
            counts.setdefault(place, Counter())[r.status] += 1
    return [
        (*place, *(str(count[s] or "") for s in Status), str(count.total()))
        for place, count in counts.items()
    ]


def details(records: Sequence[Record]) -> list[Row]:
    """One row per model: what each library reached on it."""
    libraries = list(dict.fromkeys(r.library for r in records))
    cells = {(r.key, r.library): _cells(r) for r in records}
    keys = dict.fromkeys(r.key for r in records)
    return [
        (key, *(cell for name in libraries for cell in cells.get((key, name), EMPTY)))
        for key in keys
    ]


def behind(records: Sequence[Record], ours: str) -> list[str]:
    """Models that another library prunes exactly and ours does not."""
    exact = {(r.key, r.library) for r in records if r.status is Status.EXACT}
    tried = {r.key for r in records if r.library == ours}
    others = {key for key, library in exact if library != ours}
    return sorted(key for key in others & tried if (key, ours) not in exact)


def compared(records: Sequence[Record], ours: str) -> str:
    """On what the models were compared that are exact with ours, in a sentence."""
    exact = [r for r in records if r.library == ours and r.status is Status.EXACT]
    verdicts = [r.verdict for r in exact if r.verdict is not None]
    others = sum(verdict.other_inputs for verdict in verdicts)
    trained = sum(verdict.train_mode for verdict in verdicts)
    return (
        f"Of {len(exact)} that are exact with {ours}, {others} were compared on other "
        f"inputs too, and {trained} in train mode."
    )


def reasons(records: Iterable[Record]) -> list[Row]:
    """Why an attempt did not end in an exact removal."""
    failed = [r for r in records if r.status is not Status.EXACT]
    return [(r.key, r.library, r.status, _reason(r)) for r in failed]


def markdown(records: Sequence[Record], ours: str) -> str:
    """The whole report."""
    libraries = dict.fromkeys(r.library for r in records)
    header = ("model", *(f"{name}: {c}" for name in libraries for c in COLUMNS))
    missed = ", ".join(behind(records, ours)) or "none"
    return "\n".join(
        [
            INTRODUCTION,
            *_versions(records),
            "",
            "## Totals\n",
            _markdown_table(TOTALS_HEADER, totals(records)),
            f"{compared(records, ours)} Exact elsewhere, not here: {missed}.\n",
            "## Models\n",
            _markdown_table(header, details(records)),
            "## Reasons\n",
            _markdown_table(("model", "library", "status", "reason"), reasons(records)),
        ]
    )


def terminal(records: Sequence[Record]) -> Table:
    """The totals."""
    table = Table(*TOTALS_HEADER, box=None, pad_edge=False)
    for row in totals(records):
        table.add_row(*row)
    return table


def _cells(record: Record) -> Row:
    seconds = f"{record.seconds:.1f}"
    if record.verdict is None:
        return (record.status, "", "", "", seconds)
    shares = (record.verdict.params_share, record.verdict.macs_share)
    return (record.status, str(record.groups), *(f"{x:.0%}" for x in shares), seconds)


def _reason(record: Record) -> str:
    if record.status is Status.WRONG and record.verdict is not None:
        return f"outputs differ by {record.verdict.error:.1e} of the largest"
    return record.reason.replace("|", "\\|")


def _versions(records: Iterable[Record]) -> list[str]:
    pairs = sorted({(r.library, r.version) for r in records})
    by_library = groupby(pairs, key=lambda pair: pair[0])
    return [f"- {name}: {', '.join(v for _, v in rest)}" for name, rest in by_library]


def _markdown_table(header: Row, rows: Iterable[Row]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

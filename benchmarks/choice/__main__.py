"""The command: makes what has no record yet, then prints the table.

It needs Torch-Pruning: `make choice` runs it in an environment of its own. `--table`
only prints, and needs nothing.
"""

from benchmarks._command import command
from benchmarks.choice import record, table


def main() -> None:
    """Run, then print."""
    parser = command(__doc__)
    parser.add_argument("tasks", nargs="*", help="only these tasks")
    parser.add_argument("--table", action="store_true", help="only print")
    parser.add_argument("--method", action="append", default=[], help="only this one")
    parser.add_argument("--target", action="append", type=float, default=[])
    parser.add_argument("--compute", action="append", type=float, default=[])
    parser.add_argument("--seed", action="append", type=int, default=[])
    given = parser.parse_args()
    if not given.table:
        from benchmarks.choice.runner import Part, run  # noqa: PLC0415 - needs Torch-Pruning

        part = Part(given.tasks, given.method, given.target, given.seed, given.compute)
        run(part)
    print(table.markdown([*record.load().values()]))


if __name__ == "__main__":
    main()

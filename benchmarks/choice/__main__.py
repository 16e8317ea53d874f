"""The command: makes what has no record yet, then prints the table.

`--table` only prints; names of tasks confine it to them. It needs Torch-Pruning: `make
choice` runs it in an environment of its own.
"""

import sys

from benchmarks.choice import record, table


def main(arguments: list[str]) -> None:
    """Run, then print."""
    if "--table" not in arguments:
        from benchmarks.choice.runner import run  # noqa: PLC0415 - needs Torch-Pruning

        run(arguments)
    print(table.markdown([*record.load().values()]))


if __name__ == "__main__":
    main(sys.argv[1:])

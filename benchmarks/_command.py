"""The command line of a script: `--help` explains, and what is unknown is refused.

A script without options must read its command line, too: else `--help` would start to
measure, and replace a record.
"""

import argparse
import sys
from collections.abc import Callable, Collection


def command(doc: str | None) -> argparse.ArgumentParser:
    """What reads the command line of the script that is run.

    Args:
        doc: The docstring of its file, which `--help` shows.
    """
    spec = sys.modules["__main__"].__spec__
    name = "SCRIPT" if spec is None else spec.name.removesuffix(".__main__")
    return argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """The type of an argument that is one of some names.

    Examples:
        >>> one_of(["lenet5"])("lenet")
        Traceback (most recent call last):
            ...
        argparse.ArgumentTypeError: there is no `lenet`; there are `lenet5`
    """

    def known(name: str) -> str:
        if name in names:
            return name
        there_are = ", ".join(f"`{one}`" for one in names)
        raise argparse.ArgumentTypeError(f"there is no `{name}`; there are {there_are}")

    return known

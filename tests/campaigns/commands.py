"""Spoil one option of a good command at a time, as people type it.

Every command of `diffprune`, every option and argument, is found in the program itself.
A spoilt command must end with an exit code of its own and a message, never with a
traceback of the library; where it ends well, a reason is listed.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import typer
from typer.testing import CliRunner

from diffprune.lab.cli import app
from tests.campaigns.doors import TASK

WORDS = (
    "nan", "inf", "-inf", "-1", "0", "1e999", "2.5", "True", "nonsense", "", " ",
    "missing.py:task", "mine.py", "mine.py:nothing", ":", "=", "macs=", "=0.5",
    "macs=nan", "macs=-1", "macs=0", "nonsense=1", "macs=0.5,macs", "latency=5parsecs",
    "lr=fast", "cuda:99", "missing", "letter", "noise", "..", "/dev/null", "a\tb",
    "{}", "[" * 99, "x" * 300, "*", "0x10", "½",
)  # fmt: skip
GOOD = {
    "bench": ["run"],
    "compare": ["run"],
    "demo": [],
    "export": ["run"],
    "inspect": ["mine.py:model", "--input", "2,3"],
    "report": ["run"],
    "shrink": ["mine.py:task", "--budget", "macs=0.7"],
    "sweep": ["mine.py:task", "--vary", "strength=0.001", "--epochs", "1"],
    "train": ["mine.py:task", "--epochs", "1", "--batch-size", "4"],
}
SLOW = {"demo": "a training of its own; its options are those of `train`"}

ACCEPTED = (
    ("*", "*", "0", "zero is in its range"),
    ("*", "*", "-1", "it is a number like others"),
    ("*", "*", "2.5", "it is a number like others"),
    ("*", "out", "*", "a folder or file of that name is written"),
    ("*", "figure", "*.svg", "a file of that name is written"),
    ("*", "seed", "*", "any whole number seeds"),
    ("*", "freeze", "[*]", "a pattern that matches everything freezes everything"),
)


@dataclass(frozen=True)
class Typed:
    """A command with one bad word."""

    command: str
    option: str
    word: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"diffprune {' '.join(self.arguments)!r} ({self.option}={self.word!r})"


def prepare(folder: Path) -> None:
    """A task, a finished run of it, a letter and some noise."""
    (folder / "mine.py").write_text(TASK)
    (folder / "letter").write_text("Dear Sir or Madam")
    (folder / "noise").write_bytes(bytes(range(256)) * 9)
    with chdir(folder):
        words = ["train", *GOOD["train"], "--strength", "0.001", "--out", "run"]
        done = CliRunner().invoke(app, words)
    if done.exit_code:
        raise RuntimeError(done.output)


def typed_commands() -> Iterator[Typed]:
    """Every option of every command, with every bad word."""
    group = typer.main.get_command(app)
    for command, found in sorted(group.commands.items()):
        if command in SLOW:
            continue
        for parameter in found.params:
            for word in WORDS:
                yield _typed(command, parameter, word)


def _typed(command, parameter, word):
    good = GOOD[command]
    if parameter.param_type_name == "argument":
        arguments = (command, word, *good[1:])
    elif getattr(parameter, "is_flag", False):
        arguments = (command, *good, f"{parameter.opts[0]}={word}")
    else:
        arguments = (command, *good, parameter.opts[0], word)
    return Typed(command, parameter.name, word, arguments)


def judge(typed: Typed, folder: Path) -> tuple[str, str]:
    """`refused`, `accepted`, or what went wrong; and what was said."""
    with tempfile.TemporaryDirectory() as place:
        here = Path(place) / "some" / "where"  # `..` is a folder of nobody else
        shutil.copytree(folder, here)
        with chdir(here):
            done = CliRunner().invoke(app, typed.arguments)
    said = (done.stderr or done.output).strip()
    is_ours = done.exception is None or isinstance(done.exception, SystemExit)
    if not is_ours or "Traceback" in said:
        return "inner", f"{type(done.exception).__name__}: {done.exception}"
    if done.exit_code:
        return ("refused" if said else "silent"), said
    for command, option, word, reason in ACCEPTED:
        pairs = ((typed.command, command), (typed.option, option), (typed.word, word))
        if all(fnmatchcase(text, pattern) for text, pattern in pairs):
            return "accepted", reason
    return "harmful", said

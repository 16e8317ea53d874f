import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from diffprune.lab.cli import app

COMMANDS = [command.callback.__name__ for command in app.registered_commands]
SCRIPT = """
import sys
from diffprune.lab.cli import app
for line in sys.argv[1:]:
    try: app(line.split())
    except SystemExit as end: assert not end.code
    assert "torch" not in sys.modules, f"`{line}` imports torch"
"""


def test_help_and_version_do_not_import_torch():
    lines = ["--help", "--version", *(f"{name} --help" for name in COMMANDS)]
    command = [sys.executable, "-c", SCRIPT, *lines]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_with_examples(diffprune, name):
    assert f"• diffprune {name}" in diffprune(name, "--help").stdout


def test_help_says_what_exit_codes_mean(diffprune):
    text = diffprune("--help").stdout
    assert "0 done; 1 it could not be done" in text
    assert "--install-completion" in text


def test_version(diffprune):
    assert diffprune("--version").stdout == f"diffprune {version('diffprune')}\n"


@pytest.mark.parametrize("arguments", [["demo", "--epochs", "many"], ["dmeo"]])
def test_misuse_exits_with_2(diffprune, arguments):
    assert diffprune(*arguments).exit_code == 2


def test_a_shell_completes_commands():
    words = {"COMP_WORDS": "diffprune ins", "COMP_CWORD": "1"}
    variables = {**os.environ, **words, "_DIFFPRUNE_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "diffprune"]
    done = subprocess.run(  # noqa: S603 - our own words
        command, env=variables, capture_output=True, text=True, check=False
    )
    assert done.stdout == "inspect\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "bench runs/mine --rounds 2 --no-onnx",
        "compare runs/mine",
        "export runs/mine --to safetensors",
        "inspect mine.py:model --input 1,3",
        "report runs/mine --no-measure",
        "shrink mine.py:task --budget macs=0.5 --out small",
        "train mine.py:task --epochs 1 --out runs/another",
    ],
)
def test_commands_are_quiet_programs(finished, line):
    """In a process of its own, JSON is all on stdout, and nothing warns."""
    words = ["-W", "error::UserWarning", "-m", "diffprune", *line.split(), "--json"]
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, *words], cwd=finished, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert b"Warning" not in done.stderr

import re
from pathlib import Path

from typer.testing import CliRunner

from diffprune.lab import Recipe, defaults
from diffprune.lab.cli.app import app
from diffprune.lab.runs.tasks import load_task

PAGE = Path(__file__).parents[2] / "docs/howto/train.md"
ROW = re.compile(r"^\| `--([a-z-]+)` \| `?([^`|]+)`? \|$", re.MULTILINE)
TASK = "def mine(recipe): ..."


def test_a_task_of_ones_own_is_trained_with_the_defaults(tmp_path):
    (tmp_path / "mine.py").write_text(TASK)
    _, make_recipe = load_task(f"{tmp_path / 'mine.py'}:mine")
    assert make_recipe(0) == Recipe(
        name="mine",
        epochs=defaults.EPOCHS,
        batch_size=defaults.BATCH_SIZE,
        lr=defaults.LR,
        gate_lr=None,
        budget={"macs": defaults.MACS},
    )


def test_help_and_page_say_the_defaults():
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"})
    said = " ".join(shown.output.replace("│", " ").split())
    page = PAGE.read_text(encoding="utf-8")
    table = dict(
        re.findall(r"^\| `--([a-z-]+)` \| `?([^`|]+)`? \|$", page, re.MULTILINE)
    )
    expected = {
        "epochs": str(defaults.EPOCHS),
        "batch-size": str(defaults.BATCH_SIZE),
        "lr": f"{defaults.LR:g}",
        "budget": f"macs={defaults.MACS:g}",
    }
    for option, value in expected.items():
        assert table[option].strip() == value
        assert f"default {value}" in said or f"default `{value}`" in said

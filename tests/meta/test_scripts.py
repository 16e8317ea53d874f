"""Scripts of the repository read their command line before they do anything."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "tools", "tests/campaigns", "paper")


def scripts():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if '__name__ == "__main__"' in path.read_text(encoding="utf-8"):
                parts = path.relative_to(ROOT).with_suffix("").parts
                yield ".".join(parts).removesuffix(".__main__")


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # others import it
@pytest.mark.parametrize("name", [*scripts()])
def test_a_script_explains_itself_and_refuses_what_it_does_not_know(
    name, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__")
    assert not ended.value.code
    assert "usage" in capsys.readouterr().out.lower()
    monkeypatch.setattr(sys, "argv", [name, "--no-such-option"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__")
    assert ended.value.code == 2

import json
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from rich.table import Table
from typer import Exit

from diffprune._surgery import Plan
from diffprune.lab.cli.output import own_part, show, show_json


def caught(function):
    """What a function raises, as seen from there."""
    with pytest.raises(ValueError, match=r".") as info:
        function()
    return info.value.with_traceback(info.value.__traceback__.tb_next)


def test_our_own_errors_are_nobody_elses():
    assert own_part(caught(partial(Plan.from_json, "{"))) is None


def test_it_begins_with_the_users_code(tmp_path):
    file = tmp_path / "users.py"
    file.write_text("import json\ndef read(): json.loads('{')")
    names = {}
    exec(compile(file.read_text(), str(file), "exec"), names)  # noqa: S102 - our own words
    found = own_part(caught(names["read"]))
    assert found.tb_frame.f_code.co_filename == str(file)
    assert found.tb_next.tb_frame.f_code.co_filename == json.__file__


def test_what_is_written_to_a_pipe_is_not_cut(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table("a", "b")
    table.add_column(no_wrap=True)
    cells = ["x" * 60, "y" * 60, "1" * 60]
    table.add_row(*cells)
    show(table, "z" * 200)
    shown = capsys.readouterr().out
    assert all(cell in shown for cell in (*cells, "z" * 200))


def test_a_width_that_is_asked_for_is_kept(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    show("z " * 60)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 40


@pytest.mark.parametrize("result", [partial(show, "text"), partial(show_json, {})])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has one")
def test_a_full_disk_is_said(monkeypatch, capsys, result):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(Exit):
            result()
    assert (
        "Error: the result cannot be written: No space left" in capsys.readouterr().err
    )


def test_letters_that_a_terminal_does_not_have_are_spelt(monkeypatch):
    raw = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(raw, "ascii"))
    show("\N{LATIN SMALL LETTER U WITH DIAERESIS}n\N{RIGHTWARDS ARROW}")
    assert raw.getvalue().decode().strip() == r"\xfcn\u2192"

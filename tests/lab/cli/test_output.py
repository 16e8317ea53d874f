import json
from functools import partial

import pytest
from rich.table import Table

from diffprune._surgery import Plan
from diffprune.lab.cli.output import own_part, show


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

"""Code in the README and in the documentation is executed, page by page."""

import doctest
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if BLOCK.search(page.read_text(encoding="utf-8"))
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_on_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    names = {"__name__": page.stem}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        run(block[1], block[2], names, f"{page.name}:{line}")


def run(language, code, names, where):
    if language == "python":
        exec(compile(code, where, "exec"), names)  # noqa: S102 - our own pages
        return
    test = doctest.DocTestParser().get_doctest(code, names, where, where, 0)
    report = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(report)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_runs(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_page_about_several_processes_shows_lines_of_its_example(kind):
    page = (ROOT / "docs" / "howto" / f"{kind}.md").read_text(encoding="utf-8")
    script = (ROOT / "examples" / f"digits_with_{kind}.py").read_text(encoding="utf-8")
    shown = re.search(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for line in script.splitlines()]
    assert shown is not None
    assert [w for w in shown[1].splitlines() if w.strip() not in lines] == []

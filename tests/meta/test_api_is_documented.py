"""The reference under docs/api has every public name, once."""

import inspect
import re
from pathlib import Path

import pytest

import diffprune
from diffprune import errors, gates, lab, rules, surgery, testing

API = Path(__file__).parents[2] / "docs" / "api"
ALIASES = {"Axes", "Op", "Rule"}
"""Names of types that signatures spell out."""

NOT_MADE_BY_USERS = {"GateLike", "Recorder"}


def documented():
    pages = [page.read_text(encoding="utf-8") for page in sorted(API.glob("*.md"))]
    return re.findall(r"^::: (\S+)", "\n".join(pages), re.MULTILINE)


def public(module):
    """Names of a module that are neither modules nor, say, of gates, at the top."""
    names = getattr(module, "__all__", None) or vars(module)
    found = {name for name in names if not name.startswith("_")} - ALIASES
    own = {name for name in found if not inspect.ismodule(getattr(module, name))}
    return own if module is diffprune else own - set(dir(diffprune))


@pytest.mark.parametrize(
    "module",
    [diffprune, errors, gates, lab, rules, surgery, testing],
    ids=lambda module: module.__name__,
)
def test_the_reference_has_every_public_name_once(module):
    depth = module.__name__.count(".") + 1
    place = f"{module.__name__}."
    names = [n for n in documented() if n.startswith(place) and n.count(".") == depth]
    assert sorted(names) == sorted(place + name for name in public(module))


@pytest.mark.parametrize(
    "module", [diffprune, gates, lab, surgery, testing], ids=lambda m: m.__name__
)
def test_docstrings_say_what_every_argument_is(module):
    unsaid = [
        f"{name}: {argument}"
        for name in public(module) - NOT_MADE_BY_USERS
        if callable(function := getattr(module, name))
        for argument in inspect.signature(function).parameters
        if not is_named(argument, inspect.getdoc(function) or "")
    ]
    assert unsaid == []


def is_named(argument, text):
    return re.search(rf"^ +\**{argument}\b.*:|`{argument}`", text, re.MULTILINE)


def test_the_reference_has_no_private_names():
    assert [name for name in documented() if "._" in name] == []

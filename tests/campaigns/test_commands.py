"""A misspelt command says so; here a sample, `python -m tests.campaigns` types all."""

import random

import pytest

from tests.campaigns.commands import GOOD, SLOW, judge, prepare, typed_commands

COMMANDS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("commands")
    prepare(place)
    return place


def test_every_command_is_in_the_campaign():
    assert {typed.command for typed in typed_commands()} == GOOD.keys() - SLOW.keys()


def test_bad_commands_are_refused(folder):
    typed = [one for one in typed_commands() if one.command != "report"]
    failures = {}
    for one in random.Random(0).sample(typed, COMMANDS):  # noqa: S311 - no secret
        kind, said = judge(one, folder)
        if kind not in {"refused", "accepted"}:
            failures[str(one)] = f"{kind}: {said[:300]}"
    assert not failures

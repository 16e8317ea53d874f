"""Spoil one argument of a good call at a time, and judge what becomes of it.

A spoilt call has to be refused by an error of `diffprune.errors` that names the
argument, and leave everything as it was. What may be given after all is listed, with
reasons, in `accepted.py`.
"""

import inspect
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from diffprune._graph.model_runs import ExampleInputs
from diffprune.errors import DiffpruneError, RemovalError
from tests.campaigns.accepted import NAMED_BY, reason_for
from tests.campaigns.bad_values import Make, bad_values
from tests.campaigns.doors import GOOD
from tests.campaigns.injection import difference, everything


@dataclass(frozen=True)
class Spoilt:
    """A call with one bad argument."""

    door: str
    argument: str
    value: str
    make: Make
    annotation: str
    is_many: bool

    def __str__(self) -> str:
        return f"{self.door}({self.argument}={self.value})"


@dataclass(frozen=True)
class Verdict:
    """What became of it.

    Attributes:
        kind: `refused`, `accepted` for a listed reason, and otherwise a failure:
            `harmful`, `inner`, `nameless` or `changed`.
        message: What was said, or the reason.
    """

    kind: str
    message: str = ""

    @property
    def is_good(self) -> bool:
        return self.kind in {"refused", "accepted"}


def annotation_of(parameter: inspect.Parameter) -> str:
    hint = parameter.annotation
    if hint in (ExampleInputs, ExampleInputs | None):
        return "ExampleInputs"
    return hint if isinstance(hint, str) else inspect.formatannotation(hint)


def spoilt_calls(folder: Path) -> Iterator[Spoilt]:
    """Every argument of every door, with every bad value for it."""
    for door, make_good in GOOD.items():
        for name, parameter in make_good(folder).parameters().items():
            if name.startswith("_"):
                continue
            is_many = parameter.kind is parameter.VAR_POSITIONAL
            annotation = annotation_of(parameter)
            for value, make in bad_values(annotation).items():
                yield Spoilt(door, name, value, make, annotation, is_many)


def judge(spoilt: Spoilt, folder: Path) -> Verdict:
    """Make the call, and say what became of it."""
    good = GOOD[spoilt.door](folder)
    place = Path(tempfile.mkdtemp(dir=folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about what it makes
        value = spoilt.make(place)
    here = place / "some" / "where"  # deep enough for `../..`
    here.mkdir(parents=True)
    given = (value,) if spoilt.is_many else value
    good.arguments = {**good.arguments, spoilt.argument: given}
    before = everything(*good.roots)
    try:
        # Names of files without a folder are files of the present one.
        with chdir(here), warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")
            good.call()
    except Exception as error:  # noqa: BLE001 - which is what we are looking for
        return _refusal(
            spoilt, value, error, difference(before, everything(*good.roots))
        )
    finally:
        if hasattr(good, "opened"):
            with suppress(Exception):
                good.opened.__exit__(None, None, None)
    reason = reason_for(spoilt.door, spoilt.argument, spoilt.value, spoilt.annotation)
    return Verdict("accepted" if reason else "harmful", reason or "")


def _refusal(spoilt, value, error, changed):
    said = f"{type(error).__name__}: {error}"
    if reason := _is_not_ours(spoilt, error):
        return Verdict("refused", reason)
    if not isinstance(error, DiffpruneError):
        return Verdict("inner", said)
    if changed:
        return Verdict("changed", f"{changed}\n{said}")
    is_named = _is_named(spoilt, value, str(error)) or isinstance(error, RemovalError)
    return Verdict("refused" if is_named else "nameless", said)


def _is_not_ours(spoilt, error):
    """Why an error of another kind is right, if it is."""
    if "of the user's" in str(error):
        return "what a function of the user's raises is the user's"
    if isinstance(error, TypeError) and "multiple values for" in str(error):
        return "the call has no such form"
    if spoilt.argument == "make_model" and isinstance(error, RuntimeError | TypeError):
        return "what a function of the user's raises is the user's"
    is_law = spoilt.door.startswith("diffprune.testing.")
    return "a law is broken" if is_law and isinstance(error, AssertionError) else ""


def _is_named(spoilt, value, text):
    name = spoilt.argument
    words = [name, name.rstrip("s"), name.replace("_", " "), *NAMED_BY.get(name, ())]
    if any(re.search(rf"\b{re.escape(word)}", text) for word in words):
        return True
    if isinstance(value, Path | str) and str(value):
        return str(value) in text or str(Path(value).parent) in text
    return type(value).__name__ in text  # a model may be called by its class

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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from diffprune._graph.tracing import ExampleInputs
from diffprune.errors import DiffpruneError, RemovalError
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
    is_many: bool

    def __str__(self):
        return f"{self.door}({self.argument}={self.value})"


@dataclass(frozen=True)
class Verdict:
    """What became of it: `refused`, `accepted`, `inner`, `nameless` or `changed`."""

    kind: str
    message: str = ""


def annotation_of(parameter):
    hint = parameter.annotation
    if hint == ExampleInputs:
        return "ExampleInputs"
    if hint == ExampleInputs | None:
        return "ExampleInputs | None"
    return hint if isinstance(hint, str) else inspect.formatannotation(hint)


def spoilt_calls(folder: Path) -> Iterator[Spoilt]:
    """Every argument of every door, with every bad value for it."""
    for door, make_good in GOOD.items():
        for name, parameter in make_good(folder).parameters().items():
            if name.startswith("_"):
                continue
            is_many = parameter.kind is parameter.VAR_POSITIONAL
            for value, make in bad_values(annotation_of(parameter)).items():
                yield Spoilt(door, name, value, make, is_many)


def judge(spoilt: Spoilt, folder: Path) -> Verdict:
    """Make the call, and say what became of it."""
    good = GOOD[spoilt.door](folder)
    value = spoilt.make(Path(tempfile.mkdtemp(dir=folder)))
    good.arguments = {
        **good.arguments,
        spoilt.argument: (value,) if spoilt.is_many else value,
    }
    before = everything(*good.roots)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")
            good.call()
    except DiffpruneError as error:
        changed = difference(before, everything(*good.roots))
        if changed:
            return Verdict("changed", f"{changed}\n{error}")
        return _named(spoilt, value, error)
    except ZeroDivisionError as error:
        if "of the user's" not in str(error):
            return Verdict("inner", f"{type(error).__name__}: {error}")
        return Verdict("refused", "an error of the user's own code is the user's")
    except AssertionError as error:
        is_law = spoilt.door.startswith("diffprune.testing.")
        return Verdict("refused" if is_law else "inner", f"AssertionError: {error}")
    except TypeError as error:
        if "multiple values for" in str(error):
            return Verdict("refused", "the call has no such form")
        return Verdict("inner", f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - which is what we are looking for
        return Verdict("inner", f"{type(error).__name__}: {error}")
    finally:
        if hasattr(good, "opened"):
            with suppress(Exception):
                good.opened.__exit__(None, None, None)
    return Verdict("accepted")


def _named(spoilt, value, error):
    text = str(error)
    words = {
        spoilt.argument,
        spoilt.argument.rstrip("s"),
        spoilt.argument.replace("_", " "),
    }
    is_named = any(re.search(rf"\b{re.escape(word)}", text) for word in words)
    is_path = isinstance(value, Path | str) and str(value)
    names_file = is_path and (str(value) in text or str(Path(value).parent) in text)
    # A model may be called by its class, and what computes something else is refused.
    is_named |= type(value).__name__ in text or isinstance(error, RemovalError)
    return Verdict("refused" if is_named or names_file else "nameless", text)

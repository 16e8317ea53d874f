"""Raise an exception at the n-th call into the library, and compare everything.

A profile hook sees every call of a Python function. Raising there is what Ctrl-C does
between any two steps, and stands for whatever else may fail.
"""

import copy
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import diffprune

_LIBRARY = str(Path(diffprune.__file__).parent)


class Injected(BaseException):
    """Nothing in the library can be waiting for this."""


@contextmanager
def watching(on_call):
    """Call a function with every frame of the library that is entered."""

    def hook(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(_LIBRARY):
            on_call(frame)

    sys.setprofile(hook)
    try:
        yield
    finally:
        sys.setprofile(None)


def call_sites(action):
    """Numbers of calls to inject at: the first and the last from every place."""
    first, last, count = {}, {}, 0

    def note(frame):
        nonlocal count
        caller = frame.f_back
        site = frame.f_code, caller and caller.f_lineno
        first.setdefault(site, count)
        last[site] = count
        count += 1

    with watching(note):
        action()
    return sorted({*first.values(), *last.values()}), count


def run_injected(action, number):
    """Run with an exception at this call; whether it came to that."""
    count = -1

    def strike(_):
        nonlocal count
        count += 1
        if count == number:
            sys.setprofile(None)
            raise Injected

    try:
        with watching(strike):
            action()
    except Injected:
        return True
    return False


def everything(*roots):
    """All that roots hold: identities of tensors, and values of everything."""
    found, seen = [], set()

    def visit(name, value):
        if isinstance(value, Tensor):
            grad = None if value.grad is None else value.grad.clone()
            found.append((name, id(value), value.detach().clone(), grad))
        elif isinstance(value, dict):
            for key, item in list(value.items()):
                label = id(key) if isinstance(key, Tensor) else key
                visit(f"{name}[{label}]", item)
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                visit(f"{name}[{number}]", item)
        elif isinstance(value, nn.Module | Optimizer) or _is_ours(value):
            if id(value) not in seen:
                seen.add(id(value))
                found.append((name, id(value), type(value), None))
                for key, item in list(vars(value).items()):
                    visit(f"{name}.{key}", item)
        elif isinstance(value, int | float | str | bool | None):
            found.append((name, None, value, None))

    for number, root in enumerate(roots):
        visit(f"root{number}", root)
    return found


def _is_ours(value):
    kind = type(value)
    mutable = kind.__module__.startswith("diffprune.") and hasattr(value, "__dict__")
    return mutable and not isinstance(value, type) and kind.__name__ not in _IMMUTABLE


_IMMUTABLE = {"Groups", "PruneGroup", "Solution", "Algebra", "Network", "GateRule"}


def difference(before, after):
    """The first thing that changed; None if nothing did."""
    for one, other in zip(before, after, strict=False):
        same = one[:2] == other[:2]
        if same and isinstance(one[2], Tensor):
            same = one[2].shape == other[2].shape and torch.equal(
                one[2].nan_to_num(), other[2].nan_to_num()
            )
            same = same and (one[3] is None) == (other[3] is None)
        elif same:
            same = one[2] == other[2] or one[2] != one[2]  # noqa: PLR0124 - NaN
        if not same:
            return f"{one[0]} became {other[0]}: {one[2]!r} -> {other[2]!r}"
    return None if len(before) == len(after) else "something was added or lost"


def copied(*objects):
    """Fresh copies that belong together."""
    return copy.deepcopy(objects)

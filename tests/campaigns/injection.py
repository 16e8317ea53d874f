"""Raise an exception at the n-th call into the library, and compare everything.

A profile hook sees every call of a Python function. Raising there is what Ctrl-C does
between any two steps, and stands for whatever else may fail.
"""

import gc
import logging
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import checkpoint as checkpointing

import diffprune
from diffprune._graph import export_settings

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


def process_wide():
    """What the library changes for a while, and what belongs to the whole process."""
    settings = (*export_settings._LEAN, *export_settings._ANSWERS)
    return {
        **{name: getattr(place, name) for place, name, _ in settings},
        "checkpoint, reentrant": checkpointing.CheckpointFunction,
        "checkpoint": checkpointing._checkpoint_without_reentrant_generator,
        "gradients": torch.is_grad_enabled(),
        "garbage": gc.isenabled(),
        "silence": logging.root.manager.disable,
        "stderr": sys.stderr,
    }


def everything(*roots):
    """All that roots hold: identities of tensors, and values of everything."""
    found, seen = [], set()
    waiting = [(f"root{number}", root) for number, root in enumerate(roots)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Tensor):
            grad = None if value.grad is None else value.grad.clone()
            found.append((name, id(value), value.detach().clone(), grad))
        elif isinstance(value, int | float | str | bool | None):
            found.append((name, None, value, None))
        elif id(value) not in seen:
            seen.add(id(value))
            waiting += _held(name, value)
    return found


def _held(name, value):
    if isinstance(value, dict):
        labels = [id(key) if isinstance(key, Tensor) else key for key in value]
        pairs = zip(labels, value.values(), strict=True)
        return [(f"{name}[{label}]", item) for label, item in pairs]
    if isinstance(value, list | tuple):
        return [(f"{name}[{number}]", item) for number, item in enumerate(value)]
    if isinstance(value, nn.Module | Optimizer) or _is_ours(value):
        kind = [(f"{name} is a", type(value).__name__)]
        held = [(k, v) for k, v in vars(value).items() if k not in _CACHES]
        return kind + [(f"{name}.{key}", item) for key, item in held]
    return []


def _is_ours(value):
    kind = type(value)
    mutable = kind.__module__.startswith("diffprune.") and hasattr(value, "__dict__")
    return mutable and not isinstance(value, type) and kind.__name__ not in _SKIPPED


_CACHES = {"_present"}
"""Attributes that are computed when somebody asks."""

_SKIPPED = {
    # What cannot change, and running means, which count a step before it is taken.
    "Groups", "PruneGroup", "Solution", "Algebra", "Network", "GateRule", "Slopes",
    "Observer", "Measuring",
}  # fmt: skip


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
            same = one[2] == other[2] or one[2] != one[2]
        if not same:
            return f"{one[0]} became {other[0]}: {one[2]!r} -> {other[2]!r}"
    return None if len(before) == len(after) else "something was added or lost"

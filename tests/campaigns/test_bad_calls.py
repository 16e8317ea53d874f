"""Bad input ends in a clear error that names it, or is rightly accepted.

Here a sample of all calls, another argument of every function at least;
`python -m tests.campaigns` makes them all.
"""

import importlib
import inspect
import random

import pytest

import diffprune as dp
from diffprune import lab
from tests.campaigns.accepted import ACCEPTED
from tests.campaigns.bad_calls import judge, spoilt_calls
from tests.campaigns.doors import GOOD, LIBRARIES, PUBLIC

EXPENSIVE = (
    "diffprune.to_", "diffprune.benchmark", "diffprune.lab.write_report",
    "diffprune.lab.Front", "diffprune.integrations",
)  # fmt: skip
"""What the long campaign does alone."""

CALLS = 420
NO_DOORS = {
    "rules": "what a rule receives; whatever it does with it is a `RuleError`",
    "surgery": "what other functions return, frozen data",
    "lab": "what other functions return, frozen data",
    "gates": "a protocol, and a base class for gates of users' own",
}
RETURNED = {
    "gates": {"BaseGate", "GateLike"},
    "surgery": {
        "Certificate", "FrozenAxis", "Groups", "Plan", "PruneGroup", "Removal",
        "RemovalRecord", "ShrinkReport", "TensorAxis",
    },
    "rules": {
        "Axes", "Call", "Op", "Rule", "Step", "Unsupported", "Value", "Zeros",
        "always_zero", "never_zero", "zero_if_all", "zero_if_any", "zero_if_first",
        "zero_if_parts", "zero_if_tried", "zero_rows",
    },
    "lab": {"Epoch", "Front", "Outcome", "Recorder", "Run"},
}  # fmt: skip
"""By namespace, what nobody calls with arguments of their own, as `NO_DOORS` says."""


INNER = {"extra_repr", "load_state_dict", "values"}
"""Methods that torch calls, or that other methods of gates are made of."""


def public_callables():
    for module in PUBLIC:
        names = getattr(module, "__all__", None) or vars(module)
        for name in names:
            found = getattr(module, name)
            is_ours = getattr(found, "__module__", "").startswith("diffprune")
            if not name.startswith("_") and callable(found) and is_ours:
                yield module.__name__, name, found


def test_every_public_function_is_in_the_campaign():
    tried = {id(_found(door)) for door in GOOD}
    for module, name, found in public_callables():
        short = module.rpartition(".")[2]
        if name not in RETURNED.get(short, ()):
            assert id(found) in tried, f"{module}.{name}"


def test_every_method_with_arguments_is_in_the_campaign():
    for kind in (dp.Pruner, dp.Gate, lab.Recorder, lab.Recipe):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            is_ours = method.__module__.startswith("diffprune")
            takes = len(inspect.signature(method).parameters) > 1
            if is_ours and takes and not name.startswith("_") and name not in INNER:
                module = "diffprune.lab" if hasattr(lab, kind.__name__) else "diffprune"
                assert f"{module}.{kind.__name__}.{name}" in GOOD


def _found(door):
    parts = door.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return found
    return None


def test_every_integration_is_in_the_campaign():
    assert set(LIBRARIES) == {
        door.split(".")[2] for door in GOOD if ".integrations." in door
    }


def test_every_reason_has_words():
    assert all(one.reason and one.door for one in ACCEPTED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("calls")


def test_bad_calls_are_refused_by_name(folder):
    calls = [c for c in spoilt_calls(folder) if not c.door.startswith(EXPENSIVE)]
    assert len(calls) > 5_000
    failures = {}
    for call in random.Random(0).sample(calls, CALLS):  # noqa: S311 - no secret
        verdict = judge(call, folder)
        if not verdict.is_good:
            failures[str(call)] = f"{verdict.kind}: {verdict.message[:300]}"
    assert not failures


def test_doors_are_what_they_say():
    for door in GOOD:
        found = _found(door)
        assert found is None or callable(found), door
        assert inspect.isroutine(found) or inspect.isclass(found), door

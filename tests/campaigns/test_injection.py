"""Whatever fails, wherever: model, gates, optimizer and controller are as they were.

Here at a few calls of each scene, spread over all of them.
"""

import random

import pytest

from tests.campaigns.injection import (
    call_sites,
    difference,
    everything,
    process_wide,
    run_injected,
)
from tests.campaigns.scenes import SCENES

STRIKES = 6


# Python swallows what is raised while a generator is thrown away.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", SCENES)
def test_an_exception_at_any_call_changes_nothing(name):
    _, action = SCENES[name]()
    sites, _ = call_sites(action)
    chosen = random.Random(0).sample(sites, min(STRIKES, len(sites)))  # noqa: S311 - no secret
    roots, action = SCENES[name]()
    around = process_wide()
    for number in chosen:
        before = everything(*roots)
        if not run_injected(action, number):  # caches are warm: it took fewer calls
            roots, action = SCENES[name]()
            continue
        found = difference(before, everything(*roots))
        assert found is None, f"after call {number}: {found}"
        assert process_wide() == around, f"after call {number}"
    action()  # and it still works

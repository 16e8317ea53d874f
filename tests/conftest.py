import gc
import logging
import shutil
import sys

import pytest
import torch
from hypothesis import settings

from diffprune._core.randomness import seed_torch_

# One gate takes a millisecond, but the machine may be busy.
settings.register_profile("diffprune", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("diffprune")


def pytest_collection_finish():
    """Look for garbage more rarely: a trace makes many objects, and few are garbage.

    What is imported by now stays, so there is no use in looking for any in it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


@pytest.fixture(autouse=True)
def same_numbers_every_time():
    """Every test starts from the same seed and leaves the random state as it was."""
    with torch.random.fork_rng():
        seed_torch_(0)
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Parallel test workers share the machine; none may take all of it."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def accelerate_forgets():
    """Accelerate keeps one state per process: no test may find that of another."""
    yield
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def heard():
    """Log records of this test, also of loggers that keep theirs to themselves."""
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    known = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    alone = [logging.root, *(logger for logger in known if not logger.propagate)]
    for logger in alone:
        logger.addHandler(handler)
    yield records
    for logger in alone:
        logger.removeHandler(handler)


@pytest.fixture(scope="session")
def chromium():
    """Debian's browser, driven by Playwright; pages are nothing without one."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no `chromium` on the PATH: pages were not opened in a browser")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright drives the browser"
    )
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()

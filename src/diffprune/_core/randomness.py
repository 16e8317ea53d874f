"""All random generators that training may draw from, as plain data, and back."""

import random
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed_torch_(seed: int) -> None:
    """Like `torch.manual_seed`, which notes the stack of calls for absent accelerators.

    That takes a millisecond or more, and a certificate seeds two dozen times. One that
    is there and was not used yet is left alone: it would begin with this seed later on.
    """
    if _accelerators():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@contextmanager
def torch_forked() -> Generator[None]:
    """Leave the generators of torch as they were, on all devices that are in use.

    Examples:
        >>> before = torch.get_rng_state()
        >>> with torch_forked():
        ...     seed_torch_(7)
        >>> torch.equal(torch.get_rng_state(), before)
        True
    """
    with torch.random.fork_rng(devices=_accelerators()):
        yield


def _accelerators() -> list[int]:
    """Numbers of the accelerators of this machine; none if torch has not used any."""
    if not torch.accelerator.is_available():
        return []
    is_used = getattr(torch.get_device_module(), "is_initialized", lambda: True)
    return list(range(torch.accelerator.device_count())) if is_used() else []


def random_states() -> dict[str, Any]:
    """States of the generators of Python, NumPy, torch and its accelerators."""
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global one
    is_used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "python": random.getstate(),
        "numpy": (str(kind), torch.from_numpy(np.asarray(keys, np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if is_used else [],
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Let all generators go on from there; all or none of them.

    Accelerators that the states know and this machine lacks are left out.

    Raises:
        ValueError: If the states are damaged; the generators are as they were.
    """
    before = random_states()
    try:
        _set(states)
    except Exception as error:
        _set(before)
        raise ValueError(f"the states of random generators are damaged: {error}") from (
            error
        )
    except BaseException:
        _set(before)
        raise


def _set(states: dict[str, Any]) -> None:
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002 - the global one
    torch.set_rng_state(states["torch"])
    count = torch.cuda.device_count() if states["cuda"] else 0
    for device, state in enumerate(states["cuda"][:count]):
        torch.cuda.set_rng_state(state, device)

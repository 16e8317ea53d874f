import inspect
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from diffprune import Pruner
from diffprune._core.own_modes import own_modes
from diffprune._core.user_warnings import folder_of, warn


def broken():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    pruner = Pruner(model, torch.rand(4, 3), strength=1e-3, remove_every=1)
    model[0].weight.data[0] = torch.nan
    return pruner, torch.optim.SGD(model.parameters(), lr=0.1)


WAYS = {
    "step": lambda pruner, optimizer: pruner.step(optimizer),
    "remove_closed_": lambda pruner, optimizer: pruner.remove_closed_(optimizer),
    "finalize": lambda pruner, optimizer: pruner.finalize(optimizer),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_warning_names_the_users_line_whatever_was_called(way):
    pruner, optimizer = broken()
    with pytest.warns(UserWarning, match="NaN or infinite") as caught:
        WAYS[way](pruner, optimizer)
    line = inspect.getsourcelines(WAYS[way])[1]
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_frames_of_torch_and_of_decorators_are_passed_over():
    warns = own_modes()(partial(warn, "odd"))
    with pytest.warns(UserWarning, match="odd") as caught:
        checkpoint(warns, use_reentrant=False)
    assert caught[0].filename == __file__


def test_packages_whose_names_begin_like_torch_are_users():
    code = compile(
        "def call(warn): warn('odd')",
        f"{folder_of(torch.__file__)[:-1]}vision/a.py",
        "exec",
    )
    names = {}
    exec(code, names)  # noqa: S102 - our own words
    with pytest.warns(UserWarning, match="odd") as caught:
        names["call"](warn)
    assert caught[0].filename.endswith("torchvision/a.py")

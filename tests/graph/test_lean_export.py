"""What is left out of a trace is there again afterwards, and in other people's."""

import gc

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune._graph.lean_export import lean_export


def exported(model, x):
    program = torch.export.export(model, (x,), strict=False)
    return {key for node in program.graph.nodes for key in node.meta}


def test_an_export_of_the_user_notes_what_it_always_does():
    model, x = (
        nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)),
        torch.ones(1, 3),
    )
    before = exported(model, x)
    dp.find_groups(model, x)
    assert exported(model, x) == before
    assert {"stack_trace", "tensor_meta"} <= before


def test_what_is_left_out_is_left_out():
    with lean_export():
        left = exported(nn.Linear(3, 5), torch.ones(1, 3))
    assert "stack_trace" not in left
    assert "val" in left


@pytest.mark.parametrize("was_collecting", [True, False])
def test_garbage_is_looked_for_as_before_even_after_an_error(was_collecting):
    if not was_collecting:
        gc.disable()
    try:
        with pytest.raises(ValueError, match="no"), lean_export():
            raise ValueError("no")
        assert gc.isenabled() == was_collecting
    finally:
        gc.enable()

import pytest
import torch

from diffprune._graph.aliases import replaces_first, viewed, written

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "writes", "views"),
    [
        (aten.add.Tensor, ("x", "y"), {}, [], []),
        (aten.add_.Tensor, ("x", "y"), {}, ["x"], []),
        (aten.add.out, ("x", "y"), {"out": "z"}, ["z"], []),
        (aten.view.default, ("x", [2]), {}, [], ["x"]),
        (aten.chunk.default, ("x", 2), {}, [], ["x"]),
        (aten.copy_.default, ("x", "y"), {}, ["x"], []),
    ],
)
def test_schemas_say_what_is_shared(op, args, kwargs, writes, views):
    assert written(op, args, kwargs) == writes
    assert viewed(op, args, kwargs) == views


@pytest.mark.parametrize(
    ("op", "expected"),
    [(aten.add_.Tensor, True), (aten.add.out, False), (aten.__and__.Tensor, False)],
)
def test_only_ops_in_place_replace_their_argument(op, expected):
    assert replaces_first(op) is expected

import pytest
import torch
from torch import nn

from diffprune._graph import find_groups
from diffprune._surgery.compact import compaction
from diffprune._surgery.remove import removal
from diffprune.errors import ArgumentError
from zoo import ZOO, call


def nothing(group):
    return torch.zeros(group.size, dtype=torch.bool)


def zero_(layer):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("input_residual", "conv1"),  # nobody can say its bias: the stream is the input
        ("layer_scale", "mlp.0"),  # the bias is scaled before it is added
        ("gpt", "block.c_attn"),  # the code splits what the layer returns
        ("mlp", "0"),  # there is no residual
    ],
)
def test_where_a_branch_must_stay_one_unit_does(name, layer):
    model, inputs = ZOO[name]()
    zero_(model.get_submodule(layer))
    found = compaction(model, inputs)
    assert found.plan.stubs == {}
    assert all(found.plan.kept.values())
    torch.testing.assert_close(call(found.model, inputs), call(model, inputs))


@pytest.mark.parametrize(
    ("name", "group"),
    [("input_residual", "conv1"), ("mlp", "0"), ("llama", "layers.0.q_proj")],
)
def test_a_group_that_must_stay_cannot_be_cut_to_nothing(name, group):
    model, inputs = ZOO[name]()
    groups = find_groups(model, inputs)
    with pytest.raises(ArgumentError, match=f"`{group}` keeps none of its .* at least"):
        removal(model, inputs, groups, keep={group: nothing(groups[group])})


def test_one_branch_that_must_stay_does_not_keep_the_others():
    model, inputs = ZOO["llama"]()
    zero_(model.layers[0].v_proj)
    zero_(model.layers[1].down_proj)
    found = compaction(model, inputs)
    gone = {"norm2", "gate_proj", "up_proj", "down_proj"}
    assert set(found.plan.stubs) == {f"layers.1.{name}" for name in gone}
    torch.testing.assert_close(call(found.model, inputs), call(model, inputs))


def test_two_branches_go_together():
    model, inputs = ZOO["vit"]()
    zero_(model.blocks[0].fc1)
    zero_(model.blocks[1].attn.qkv)
    found = compaction(model, inputs)
    assert set(found.plan.stubs) == {
        *(f"blocks.0.{name}" for name in ("norm2", "fc1", "fc2")),
        *(f"blocks.1.{name}" for name in ("norm1", "attn")),
    }
    torch.testing.assert_close(call(found.model, inputs), call(model, inputs))


class Pixels(nn.Module):
    """A branch that turns its input round and back: 3 -+-> fc 4 -> fc 4 -(+)-> fc 2."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 5, 1), nn.Conv2d(5, 2, 1)
        self.fc1, self.fc2 = nn.Linear(5, 7), nn.Linear(7, 5, bias=False)

    def forward(self, x):
        x = self.stem(x)
        y = self.fc2(self.fc1(x.permute(0, 2, 3, 1)).relu_())
        return self.head(x + y.permute(0, 3, 1, 2))


def test_operations_between_the_modules_may_change_the_shape():
    model, x = Pixels().double(), torch.rand(2, 3, 6, 7, dtype=torch.float64)
    zero_(model.fc1)
    found = compaction(model, x)
    assert set(found.plan.stubs) == {"fc1", "fc2"}
    torch.testing.assert_close(found.model(x), model(x))
    larger = torch.rand(1, 3, 9, 8, dtype=torch.float64)
    torch.testing.assert_close(found.model(larger), model(larger))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_biases_move_without_a_trace_in_coarse_types_too(dtype):
    model, (x,) = ZOO["residual_mlp"]()
    model, x = model.to(dtype), x.to(dtype)
    groups = find_groups(model, x)
    small = removal(model, x, groups, keep={"fc1": nothing(groups["fc1"])})
    assert small.plan.certificate.max_relative < 1e-10
    assert {p.dtype for p in small.model.parameters()} == {dtype}

"""Every op is traced back to the line of the user's own forward that made it."""

import pytest
import torch
from torch import nn
from torch.fx import config

from diffprune._graph.infer import where
from diffprune._graph.tracing import trace


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

    def forward(self, x):
        hidden = self.layers(x)  # torch's own forward is inside
        return self.doubled(hidden).sum(1)  # and a method of ours

    def doubled(self, x):
        return x + x


def lines(model):
    (traced,) = trace(model, torch.rand(2, 3))
    calls = [node for node in traced.graph.nodes if node.op == "call_function"]
    return {str(node.target): where(node).line for node in calls}


def test_the_innermost_forward_of_the_user_is_named():
    found = lines(Net())
    assert found["aten.linear.default"].startswith("test_lines.py:18: hidden = self.la")
    assert found["aten.relu.default"] == found["aten.linear.default"]
    assert found["aten.add.Tensor"].startswith("test_lines.py:19: return self.doubled")
    assert found["aten.sum.dim_IntList"] == found["aten.add.Tensor"]


def test_where_all_is_torchs_its_own_line_is_named():
    found = lines(nn.Sequential(nn.Linear(3, 4)))
    assert found["aten.linear.default"].startswith("linear.py:")


@pytest.mark.skipif(
    not hasattr(config, "do_not_emit_stack_traces"), reason="this torch always does"
)
def test_torch_notes_no_stacks_meanwhile_and_does_again_after_that():
    before = config.do_not_emit_stack_traces
    (traced,) = trace(Net(), torch.rand(2, 3))
    assert all("stack_trace" not in node.meta for node in traced.graph.nodes)
    assert config.do_not_emit_stack_traces is before

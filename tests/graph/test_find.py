import time

import pytest
import torch
from torch import nn

import diffprune._graph.find as module
from diffprune import find_groups
from diffprune._graph.tracing import trace
from diffprune.errors import ArgumentError, UnknownNameError
from zoo import ZOO


def chain():
    layers = [nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)]
    return nn.Sequential(*layers)


def names(groups):
    return [group.name for group in groups]


def test_layers_are_frozen_by_name_pattern_or_tensor():
    x = torch.rand(2, 4)
    assert names(find_groups(chain(), x, freeze=["0"])) == ["2"]
    assert names(find_groups(chain(), x, freeze=["2.bias"])) == ["0"]
    assert names(find_groups(chain(), x, freeze=["*"])) == []


def test_the_reason_names_the_pattern():
    frozen = find_groups(chain(), torch.rand(2, 4), freeze=["[02]"]).frozen
    assert {str(axis.reason) for axis in frozen if axis.size in {5, 7}} == {
        "asked for with freeze='[02]'"
    }


def test_a_near_miss_is_corrected():
    model = nn.Sequential()
    model.add_module("encoder", nn.Linear(4, 5))
    model.add_module("decoder", nn.Linear(5, 3))
    with pytest.raises(UnknownNameError, match=r"`encodr`. Did you mean `encoder`"):
        find_groups(model, torch.rand(2, 4), freeze=["encodr"])


def test_a_far_miss_is_an_error_too():
    with pytest.raises(UnknownNameError, match="no layer matches `zzz`"):
        find_groups(chain(), torch.rand(2, 4), freeze=["zzz"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"freeze": "head"}, r"list of text, got 'head'. Type `freeze=\['head'\]`"),
        ({"heads": "half"}, "'both', 'whole' or 'head_dim', got 'half'"),
        ({"rules": {torch.roll: None}}, "rules must be a dict from an `OpOverload"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        find_groups(chain(), torch.rand(2, 4), **options)


@pytest.mark.parametrize(
    ("heads", "found"), [("both", {6, 4}), ("whole", {4}), ("head_dim", {6})]
)
def test_attention_loses_heads_units_inside_or_both(heads, found):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = 4
            self.qk, self.v = nn.Linear(9, 48), nn.Linear(9, 24)
            self.out = nn.Linear(24, 9)

        def forward(self, x):
            *batch, _ = x.shape
            q, k = self.qk(x).view(*batch, 2, self.heads, -1).unbind(2)
            v = self.v(x).view(*batch, self.heads, -1).transpose(1, 2)
            scores = q.transpose(1, 2) @ k.transpose(1, 2).mT
            return self.out((scores @ v).transpose(1, 2).flatten(2))

    groups = find_groups(Attention(), torch.rand(2, 3, 9), heads=heads)
    sizes = {group.size for group in groups if "v" in group.name or "qk" in group.name}
    assert sizes == found


def test_parameters_that_nothing_reads_are_frozen():
    model = chain()
    model[0].unused = nn.Parameter(torch.ones(6))
    frozen = find_groups(model, torch.rand(2, 4)).frozen
    (unread,) = [axis for axis in frozen if axis.size == 6]
    assert str(unread) == "0:2 (6 units): not read for these inputs"


class Residual(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.stem, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x).relu()
        return self.head(x)


def analysis_seconds(monkeypatch, depth):
    model, x = Residual(depth), torch.rand(2, 3)
    traces = trace(model, x)
    monkeypatch.setattr(module, "trace", lambda *_: traces)
    start = time.process_time()
    groups = find_groups(model, x)
    assert len(groups["stem"].axes) == 2 + 3 * depth + 1
    return time.process_time() - start


def test_the_time_is_linear_in_the_depth(monkeypatch):
    analysis_seconds(monkeypatch, 10)
    short = min(analysis_seconds(monkeypatch, 25) for _ in range(3))
    assert analysis_seconds(monkeypatch, 200) < 2.5 * 8 * short


@pytest.mark.slow
def test_a_thousand_residual_blocks_take_seconds(monkeypatch):
    assert analysis_seconds(monkeypatch, 1000) < 10


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("separate_qkv", {5, 11}),
        ("rotary_half", {5}),
        ("rotary_pairs", {5}),
        ("multi_query", {5, 7}),
        ("grouped_query", {2, 3}),
        ("grouped_query_flag", {2, 3}),
        ("grouped_query_interleave", {2, 3}),
        ("llama", {2}),
    ],
)
def test_heads_are_prunable_where_the_code_allows_it(name, heads):
    model, inputs = ZOO[name]()
    assert heads <= {group.size for group in find_groups(model, inputs)}


def twin(second=6):
    return nn.Sequential(
        nn.Linear(3, 6),
        nn.ReLU(),
        nn.Linear(6, second),
        nn.ReLU(),
        nn.Linear(second, 2),
    )


def test_tied_groups_are_one():
    groups = find_groups(twin(), torch.rand(2, 3), tie=[["0", "2"]])
    (only,) = groups
    assert {place.tensor for place in only.axes} >= {"0.weight", "2.weight", "4.weight"}


@pytest.mark.parametrize(
    ("tie", "match"),
    [
        ([["0", "2"]], "`0` has 6 units and `2` has 5"),
        (["0"], "got \\[.0.\\]. Type `tie="),
        ([["nothing*"]], "tie: "),
    ],
)
def test_what_cannot_be_tied_is_refused(tie, match):
    with pytest.raises((ArgumentError, UnknownNameError), match=match):
        find_groups(twin(5), torch.rand(2, 3), tie=tie)


class _Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(6, 12) for _ in range(3))
        self.out, self.num_heads = nn.Linear(12, 6), 4

    def forward(self, x):
        split = (layer(x).unflatten(-1, (self.num_heads, -1)) for layer in self.qkv)
        q, k, v = (part.transpose(1, 2) for part in split)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, scale=0.5)
        return self.out(mixed.transpose(1, 2).flatten(2))

    @property
    def qkv(self):
        return self.q, self.k, self.v


def test_a_group_keeps_its_name_while_a_layer_is_frozen_beside_it():
    model, x = _Attention(), torch.rand(2, 5, 6)
    assert {"q:heads", "q:head_dim"} <= {*names(find_groups(model, x, heads="both"))}
    assert names(find_groups(model, x, heads="both", freeze=["v"])) == ["q"]
    both = ["v", "q:head_dim"]
    assert names(find_groups(model, x, heads="both", freeze=both)) == []

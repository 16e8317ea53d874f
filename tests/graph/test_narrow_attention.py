import copy
import pickle

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune._graph.narrow_attention import NarrowAttention, narrow
from zoo import ZOO
from zoo.torch_attention import Encoder, Own

WIDTH, HEADS = 12, 3


def layer(**options):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(WIDTH, HEADS, **options).double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module


def sequences(kind="self", *, batched=True, batch_first=False):
    """Queries, keys and values of 2 examples: 4 and 6 tokens."""
    torch.manual_seed(1)
    tokens = 4 if kind == "self" else 6
    widths = {"kdim": (7, 5)}.get(kind, (WIDTH, WIDTH))
    query = torch.randn(4, 2, WIDTH).double()
    rest = [torch.randn(tokens, 2, width).double() for width in widths]
    found = [query, *rest] if kind != "self" else [query] * 3
    if not batched:
        alone = {id(x): x[:, 0] for x in found}
        return [alone[id(x)] for x in found]
    if batch_first:
        turned = {id(x): x.transpose(0, 1) for x in found}
        return [turned[id(x)] for x in found]
    return found


MASKS = {
    "none": lambda _tokens: {},
    "causal": lambda tokens: {
        "attn_mask": torch.ones(4, tokens).triu(1).bool(),
        "is_causal": tokens == 4,
    },
    "numbers": lambda tokens: {
        "attn_mask": torch.randn(4, tokens).double(),
        "key_padding_mask": torch.randn(2, tokens).double(),
    },
    "per_head": lambda tokens: {
        "attn_mask": torch.rand(2 * HEADS, 4, tokens) < 0.2,
        "key_padding_mask": torch.arange(tokens).expand(2, -1) > 4,
    },
}
WEIGHTS = {
    "none": {"need_weights": False},
    "mean": {},
    "each": {"average_attn_weights": False},
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["self", "cross", "kdim"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True},
        {"bias": False},
        {"add_bias_kv": True, "add_zero_attn": True},
    ],
)
def test_it_returns_what_torch_returns(options, kind, mask, weights):
    extra = {"kdim": 7, "vdim": 5} if kind == "kdim" else {}
    module = layer(**options, **extra)
    inputs = sequences(kind, batch_first=module.batch_first)
    tokens = 4 if kind == "self" else 6
    call = {**MASKS[mask](tokens), **WEIGHTS[weights]}
    expected = module(*inputs, **call)
    with narrow(module):
        found = module(*inputs, **call)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("batch_first", [False, True])
def test_one_example_needs_no_batch(batch_first):
    module = layer(batch_first=batch_first)
    inputs = sequences(batched=False)
    padding = torch.arange(4) > 2
    expected = module(*inputs, key_padding_mask=padding)
    with narrow(module):
        found = module(*inputs, key_padding_mask=padding)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_dropout_is_drawn_as_torch_draws_it():
    module, inputs = layer(dropout=0.5).train(), sequences()
    torch.manual_seed(5)
    expected, _ = module(*inputs)
    torch.manual_seed(5)
    with narrow(module):
        found, _ = module(*inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_search_leaves_the_layer_as_it_was():
    model, inputs = ZOO["torch_multihead"]()
    module = model.attention.mha
    before = dict(vars(module))
    dp.find_groups(model, inputs)
    assert type(module) is nn.MultiheadAttention
    assert vars(module) == before


def halved(model, inputs):
    groups = dp.find_groups(model, inputs)
    keep = {g.name: torch.arange(g.size) % 2 == 0 for g in groups}
    return dp.remove(model, inputs, keep=keep)


def test_a_cut_layer_is_still_an_attention_layer_with_its_names():
    model, inputs = ZOO["torch_multihead"]()
    small = halved(model, inputs).attention.mha
    assert isinstance(small, nn.MultiheadAttention)
    assert small.state_dict().keys() == model.attention.mha.state_dict().keys()
    assert (small.num_heads, small.head_dim, small.head_vdim) == (2, 3, 3)
    assert small.scale_width == 5


@pytest.mark.parametrize("name", ["torch_multihead", "torch_own_multihead"])
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301 - our own
)
def test_a_cut_layer_can_be_copied_and_pickled(name, copied):
    model, inputs = ZOO[name]()
    small = halved(model, inputs)
    again = copied(small)
    assert torch.equal(again(*inputs), small(*inputs))
    assert type(again.attention) is type(small.attention)


def test_a_subclass_goes_on_doing_what_it_adds():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 15), Own(15, 3), nn.Linear(15, 2)).double()
    inputs = torch.randn(4, 2, 3).double()
    small = halved(model, inputs)
    assert isinstance(small[1], Own)
    assert isinstance(small[1], NarrowAttention)
    dp.testing.check_removal(model.eval(), inputs)


@pytest.mark.parametrize("name", ["torch_encoder", "torch_cross", "torch_transformer"])
def test_a_cut_layer_survives_a_file(name, tmp_path):
    model, inputs = ZOO[name]()
    small = halved(model, inputs)
    dp.save_pruned(small, tmp_path)
    again = dp.load_pruned(ZOO[name].build().eval(), tmp_path)
    assert torch.equal(again(*inputs), small(*inputs))


def test_an_encoder_hides_what_is_padded_as_torch_does():
    torch.manual_seed(0)
    model = Encoder(batch_first=True, padding=True, nested=True).double().eval()
    small = halved(model, torch.randn(2, 5, 20).double())
    with torch.no_grad():
        outputs = small(torch.randn(2, 5, 20).double())
    assert outputs[0, -2:].eq(0).all()
    assert outputs[1].ne(0).all()


def test_wrong_widths_are_refused_as_torch_refuses_them():
    model, inputs = ZOO["torch_multihead"]()
    small = halved(model, inputs).attention.mha
    wide = torch.randn(2, 5, 15).double()
    with pytest.raises(AssertionError, match="expected embed_dim to be 8, got 15"):
        small(wide, wide, wide)


def test_exports_run_what_was_cut(tmp_path):
    model, inputs = ZOO["torch_encoder"]()
    small = halved(model, inputs)
    program = dp.to_exported_program(small, inputs, tmp_path / "small.pt2")
    torch.testing.assert_close(program.module()(*inputs), small(*inputs))


def test_a_pruner_removes_heads_while_it_trains():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
    inputs = torch.randn(4, 5, 16)
    pruner = dp.Pruner(model, inputs, strength=0.0)
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.0))
    with torch.no_grad():
        pruner.gates["self_attn:heads"].logits[1:3] = -9.0
    before = model.eval()(inputs)
    pruner.step(optimizer)
    pruner.remove_closed_()
    assert model.self_attn.num_heads == 2
    torch.testing.assert_close(model(inputs), before)
    small = pruner.finalize()
    torch.testing.assert_close(small(inputs), before)

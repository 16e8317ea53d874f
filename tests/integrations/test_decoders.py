"""What of decoders of transformers can be cut, and the words for what cannot."""

import pytest
import torch

import diffprune as dp
from diffprune.errors import TraceError
from diffprune.surgery import removal

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 1}
HEADS = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}
TOKENS = {"input_ids": torch.arange(10).view(2, 5), "use_cache": False}


def decoder(name, **options):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **options)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


CASES = {
    "Phi3": ({**HEADS}, {20, 3}, {"heads": "computes its width as (4 * "}),
    "Olmo2": ({**HEADS}, {20}, {"q_proj": "a statistic is taken over it"}),
    "Bloom": ({"n_head": 4}, {6, 96}, {":0": "its positions are counted"}),
    "Falcon": (
        {
            "num_attention_heads": 4,
            "num_kv_heads": 2,
            "new_decoder_architecture": True,
        },
        {96},
        {"query_key_value": "picked by their position"},
    ),
    "Mixtral": (
        {**HEADS, "num_local_experts": 3, "experts_implementation": "batched_mm"},
        {20, 3, 2},
        {"experts": "picked by their position"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_can_be_followed_is_cut_exactly_and_the_rest_says_why(name):
    options, widths, words = CASES[name]
    model = decoder(name, **options)
    groups = dp.find_groups(model, TOKENS)
    assert set(groups.sizes.values()) == widths
    for part, why in words.items():
        reasons = [str(axis) for axis in groups.frozen if part in axis.name]
        assert any(why in reason for reason in reasons), reasons
    keep = {group.name: torch.arange(group.size) > 0 for group in groups}
    found = removal(model, TOKENS, groups, keep=keep).plan.certificate
    assert found is not None
    assert found.max_relative < 1e-6


def test_experts_that_run_at_once_name_the_setting_that_frees_them():
    options = {**HEADS, "num_local_experts": 3, "num_experts_per_tok": 2}
    model = decoder("Mixtral", **options)
    frozen = [str(a) for a in dp.find_groups(model, TOKENS).frozen if a.size == 20]
    assert any('set_experts_implementation("batched_mm")' in why for why in frozen)
    model.set_experts_implementation("batched_mm")
    assert 20 in dp.find_groups(model, TOKENS).sizes.values()


def test_experts_that_run_one_by_one_name_it_too():
    model = decoder("Mixtral", **HEADS, experts_implementation="eager")
    with pytest.raises(TraceError, match=r'set_experts_implementation\("batched_mm"\)'):
        dp.find_groups(model, TOKENS)


def test_a_model_without_experts_is_not_told_of_them():
    class Branching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = decoder("Llama", **HEADS)

        def forward(self, **tokens):
            logits = self.inner(**tokens).logits
            return logits if logits.sum() > 0 else -logits

    with pytest.raises(TraceError, match="branches on the values of a tensor"):
        dp.find_groups(Branching(), TOKENS)

"""What a config has numbers for can go, and plain `from_pretrained` loads the rest."""

import pytest
import torch
import transformers

import diffprune as dp
from diffprune.errors import ArgumentError
from diffprune.integrations._hf_widths import ConfigWidths
from diffprune.integrations.transformers import load_pretrained

IDS = torch.arange(16).view(2, 8)
TEXT = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}
GROUPED = {"num_key_value_heads": 2, "head_dim": 4, "hidden_size": 16}
FULL = ["full_attention", "full_attention"]


def bert():
    config = transformers.BertConfig(**LAYERS, hidden_size=16, vocab_size=50)
    return transformers.BertForSequenceClassification(config)


def vit():
    config = transformers.ViTConfig(
        **LAYERS, hidden_size=16, image_size=8, patch_size=4
    )
    return transformers.ViTForImageClassification(config)


def t5():
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 20, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(
        **TEXT, **sizes, decoder_start_token_id=0, use_cache=False
    )
    return transformers.T5ForConditionalGeneration(config)


def llama(heads=8, key_values=4):
    config = transformers.LlamaConfig(
        **TEXT,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=key_values,
        head_dim=4,
        intermediate_size=20,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def qwen3():
    config = transformers.Qwen3Config(**TEXT, **LAYERS, **GROUPED, use_cache=False)
    return transformers.Qwen3ForCausalLM(config)


def gemma3n():
    """Its config has a list with the inner width of every layer."""
    config = transformers.Gemma3nTextConfig(
        **TEXT,
        **(LAYERS | {"intermediate_size": [24, 20]}),
        **GROUPED,
        vocab_size_per_layer_input=50,
        hidden_size_per_layer_input=4,
        num_kv_shared_layers=0,
        laurel_rank=3,
        layer_types=FULL,
        activation_sparsity_pattern=[0.0, 0.0],
        use_cache=False,
    )
    return transformers.Gemma3nForCausalLM(config)


def step():
    """Its attention reads `per_layer_config`."""
    config = transformers.Step3p7TextConfig(
        **TEXT,
        **LAYERS,
        **GROUPED,
        sliding_window=8,
        layer_types=FULL,
        mlp_layer_types=["dense", "dense"],
        n_routed_experts=2,
        moe_intermediate_size=8,
        use_cache=False,
    )
    return transformers.Step3p7TextModel(config)


def inputs_of(make):
    if make is vit:
        return {"pixel_values": torch.linspace(0, 1, 384).view(2, 3, 8, 8)}
    more = {"decoder_input_ids": IDS} if make is t5 else {}
    return {"input_ids": IDS, **more}


def outputs(model, inputs):
    with torch.no_grad():
        return model.eval()(**inputs)[0]


def cut(make, **kinds):
    """Remove what the config has numbers for: from every group, some more units."""
    torch.manual_seed(0)
    model, inputs = make().eval(), inputs_of(make)
    widths = ConfigWidths.of(model, inputs, {}, **kinds)
    groups = dp.find_groups(model, inputs, **widths.options({}))
    masks = {
        group.name: torch.arange(group.size) > number % 2
        for number, group in enumerate(groups)
        if group.size > 1 + number % 2
    }
    small = dp.remove(model, inputs, keep=masks, **widths.options({}))
    sizes = groups.sizes | {name: int(mask.sum()) for name, mask in masks.items()}
    widths.write_(small, sizes)
    return small, inputs


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (bert, {"intermediate_size": 19}),
        pytest.param(vit, {"intermediate_size": 19}, marks=pytest.mark.slow),
        pytest.param(
            t5, {"num_heads": 3, "d_kv": 2, "d_ff": 19}, marks=pytest.mark.slow
        ),
        (
            llama,
            {
                "num_attention_heads": 6,
                "num_key_value_heads": 3,
                "head_dim": 4,
                "intermediate_size": 18,
            },
        ),
        (
            qwen3,
            {
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "head_dim": 4,
                "intermediate_size": 18,
            },
        ),
    ],
)
def test_equal_widths_are_said_by_the_config(make, expected, tmp_path):
    small, inputs = cut(make, equal=True, per_layer=False)
    small.save_pretrained(tmp_path)
    again = type(small).from_pretrained(tmp_path)
    assert {name: getattr(again.config, name) for name in expected} == expected
    assert torch.equal(outputs(again, inputs), outputs(small, inputs))
    # Our own call loads it, too.
    assert torch.equal(
        outputs(load_pretrained(dp.save_pruned(small, tmp_path / "own")), inputs),
        outputs(small, inputs),
    )


def test_a_list_of_widths_is_said_layer_by_layer(tmp_path):
    small, inputs = cut(gemma3n, equal=False, per_layer=True)
    assert small.config.intermediate_size == [23, 18]
    small.save_pretrained(tmp_path)
    again = type(small).from_pretrained(tmp_path)
    assert torch.equal(outputs(again, inputs), outputs(small, inputs))


def test_per_layer_config_is_written_where_it_is_read(tmp_path):
    small, inputs = cut(step, equal=False, per_layer=True)
    heads = [one.num_key_value_heads for one in small.config.per_layer_config]
    assert heads == [1, 2]
    small.save_pretrained(tmp_path)
    again = type(small).from_pretrained(tmp_path)
    assert [one.num_attention_heads for one in again.config.per_layer_config] == [2, 4]
    assert torch.equal(outputs(again, inputs), outputs(small, inputs))


@pytest.mark.parametrize(
    "make", [bert, *(pytest.param(m, marks=pytest.mark.slow) for m in (llama, vit, t5))]
)
def test_architectures_without_numbers_for_single_layers_say_so(make):
    with pytest.raises(ArgumentError, match=r"no numbers for single.*load_pretrained"):
        ConfigWidths.of(make().eval(), inputs_of(make), {}, equal=False, per_layer=True)


def test_heads_that_a_config_would_refuse_stay():
    """Llama's wants a number of heads that divides the width: 24 has no 10 or 5."""
    model = llama(heads=12, key_values=6)
    widths = ConfigWidths.of(model, inputs_of(llama), {}, equal=True, per_layer=False)
    (only,) = widths.classes
    assert [str(setting) for setting in only.settings] == ["intermediate_size"]
    frozen = widths.options({})["freeze"]
    assert "model.layers.0.self_attn.q_proj:heads" in frozen


def test_groups_are_tied_in_one_way_only():
    widths = ConfigWidths.of(bert(), inputs_of(bert), {}, equal=True, per_layer=False)
    with pytest.raises(ArgumentError, match="leave `tie=` out"):
        widths.options({"tie": [["*"]]})

"""Models of transformers come back by one call, each layer with its own width."""

import json
import sys

import pytest
import torch
import transformers

import diffprune as dp
from diffprune.errors import ArgumentError, MissingPackageError
from diffprune.integrations.transformers import load_pretrained

IDS = torch.arange(16).view(2, 8)
SMALL = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4}
TEXT = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def bert():
    config = transformers.BertConfig(**SMALL, vocab_size=50, intermediate_size=23)
    return transformers.BertForMaskedLM(config), {"input_ids": IDS}


def gpt2():
    config = transformers.GPT2Config(
        **TEXT, n_embd=16, n_layer=2, n_head=4, n_inner=23, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": IDS}


def llama():
    config = transformers.LlamaConfig(
        **SMALL, **TEXT, num_key_value_heads=2, intermediate_size=23, use_cache=False
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS}


def vit():
    config = transformers.ViTConfig(
        **SMALL, intermediate_size=23, image_size=8, patch_size=4
    )
    model = transformers.ViTForImageClassification(config)
    return model, {"pixel_values": torch.rand(2, 3, 8, 8)}


def cut(model, inputs):
    """Heads and inner widths, in every layer others."""
    groups = dp.find_groups(model.eval(), inputs)
    masks = {
        group.name: torch.arange(group.size) >= number % group.size
        for number, group in enumerate(groups)
    }
    return dp.remove(model, inputs, keep=masks)


@pytest.fixture(
    params=[
        pytest.param(bert, marks=pytest.mark.slow),
        gpt2,
        pytest.param(llama, marks=pytest.mark.slow),
        pytest.param(vit, marks=pytest.mark.slow),
    ]
)
def case(request):
    model, inputs = request.param()
    return cut(model, inputs), inputs


def test_a_model_comes_back_by_one_call(case, tmp_path):
    small, inputs = case
    again = load_pretrained(dp.save_pruned(small, tmp_path))
    assert type(again) is type(small)
    assert not again.training
    assert repr(again) == repr(small)
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, small(**inputs).logits)
    if small.can_generate():
        options = {"max_new_tokens": 5, "attention_mask": torch.ones_like(IDS)}
        tokens = small.generate(IDS, use_cache=True, **options)
        assert torch.equal(again.generate(IDS, use_cache=True, **options), tokens)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        type(small).from_pretrained(tmp_path)


@pytest.fixture
def saved(tmp_path):
    return dp.save_pruned(gpt2()[0], tmp_path)


def test_tied_embeddings_and_settings_come_back(tmp_path):
    model = gpt2()[0].bfloat16()
    model.generation_config.max_new_tokens = 7
    again = load_pretrained(dp.save_pruned(model, tmp_path))
    assert again.lm_head.weight is again.transformer.wte.weight
    assert again.generation_config.max_new_tokens == 7
    assert again.dtype == torch.bfloat16


def test_a_model_that_was_not_cut_is_one_of_transformers(saved):
    again = transformers.GPT2LMHeadModel.from_pretrained(saved)
    expected = load_pretrained(saved)
    assert torch.equal(again(IDS).logits, expected(IDS).logits)


@pytest.mark.parametrize("name", ["Evil", "__builtins__", "pipeline", "GPT2Config", ""])
def test_only_models_of_transformers_are_built(saved, name):
    path = saved / "config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"architectures": [name]})
    )
    with pytest.raises(
        ArgumentError, match=f"names the model class '{name}', which is"
    ):
        load_pretrained(saved)


def test_a_folder_without_config_says_what_to_write(tmp_path):
    folder = dp.save_pruned(torch.nn.Linear(3, 2), tmp_path / "saved")
    with pytest.raises(
        FileNotFoundError, match=r"load_pruned\(YourModel\(...\), folder"
    ):
        load_pretrained(folder)


def test_a_missing_library_says_how_to_install_it(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingPackageError, match="pip install transformers"):
        load_pretrained(saved)

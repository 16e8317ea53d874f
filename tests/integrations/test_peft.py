"""LoRA ranks that were cut are saved and loaded by PEFT itself."""

import pytest
import torch
import transformers

import diffprune as dp
from diffprune.errors import ArgumentError

peft = pytest.importorskip("peft")

from diffprune.integrations.peft import write_ranks_  # noqa: E402 - if there is PEFT

IDS = torch.arange(16).view(2, 8)


def base():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        pad_token_id=2,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def adapted(**options):
    settings = peft.LoraConfig(
        r=8, lora_alpha=16, target_modules=["q_proj", "down_proj"], **options
    )
    model = peft.get_peft_model(base(), settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    return model


def cut(model):
    """Every layer its own rank, learned."""
    groups = dp.find_groups(model, {"input_ids": IDS})
    ranks = [group for group in groups if "lora_A" in group.name]
    assert len(ranks) == 4
    keep = {g.name: torch.arange(8) > number for number, g in enumerate(ranks)}
    return dp.remove(model, {"input_ids": IDS}, keep=keep)


@pytest.mark.parametrize("kind", [{}, {"use_rslora": True}, {"use_dora": True}])
def test_ranks_of_their_own_are_loaded_by_peft(tmp_path, kind):
    small = cut(adapted(**kind).eval())
    assert sorted(write_ranks_(small).values()) == [4, 5, 6, 7]
    small.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(base(), tmp_path).eval()
    with torch.no_grad():
        expected = small(input_ids=IDS).logits
        torch.testing.assert_close(again(input_ids=IDS).logits, expected)
        merged = again.merge_and_unload()
        torch.testing.assert_close(
            merged(input_ids=IDS).logits, expected, rtol=1e-4, atol=1e-5
        )


def test_ranks_are_learned_with_a_frozen_base(tmp_path):
    model = adapted()
    pruner = dp.Pruner(
        model, {"input_ids": IDS}, strength={"*lora_A*": 1.0}, remove_every=2
    )
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2, gate_lr=0.05))
    for _ in range(8):
        loss = model(input_ids=IDS, labels=IDS).loss + pruner.penalty()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step(optimizer)
    with pytest.raises(ArgumentError, match="still has gates"):
        write_ranks_(model)
    small = pruner.finalize().eval()
    assert max(write_ranks_(small).values()) < 8
    small.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(base(), tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(
            again(input_ids=IDS).logits, small(input_ids=IDS).logits
        )


def test_another_adapter_is_refused():
    with pytest.raises(ArgumentError, match="no LoRA adapter"):
        write_ranks_(adapted(), "other")

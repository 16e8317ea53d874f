"""One callback prunes the model of a Trainer; checkpoints and configs follow."""

import json
import logging

import pytest
import torch
import transformers
from transformers import Trainer, TrainingArguments

import diffprune as dp
from diffprune.errors import ArgumentError
from diffprune.integrations.transformers import Pruning, load_pretrained

pytest.importorskip("accelerate")

IDS = torch.arange(16).view(2, 8)
SMALL = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4}
TEXT = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
STEPS = 24


def bert():
    config = transformers.BertConfig(
        **SMALL, vocab_size=50, intermediate_size=24, num_labels=2
    )
    return transformers.BertForSequenceClassification(config), {"input_ids": IDS}


def llama():
    config = transformers.LlamaConfig(
        **SMALL, **TEXT, num_key_value_heads=2, intermediate_size=24, use_cache=False
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS}


def vit():
    config = transformers.ViTConfig(
        **SMALL, intermediate_size=24, image_size=8, patch_size=4, num_labels=2
    )
    images = {"pixel_values": torch.rand(2, 3, 8, 8)}
    return transformers.ViTForImageClassification(config), images


def t5():
    config = transformers.T5Config(
        **TEXT,
        d_model=16,
        d_kv=4,
        d_ff=24,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        use_cache=False,
    )
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS}
    return transformers.T5ForConditionalGeneration(config), inputs


class Data(torch.utils.data.Dataset):
    """What the loss of each of these models needs."""

    def __init__(self, inputs):
        self.inputs = inputs

    def __len__(self):
        return 16

    def __getitem__(self, number):
        random = torch.Generator().manual_seed(number)
        if "pixel_values" in self.inputs:
            image = torch.rand(3, 8, 8, generator=random)
            return {"pixel_values": image, "labels": number % 2}
        ids = torch.randint(3, 50, (8,), generator=random)
        return {"input_ids": ids, "labels": self.label(ids, number)}

    def label(self, ids, number):
        return number % 2 if len(self.inputs) == 1 and self.is_class else ids

    is_class = True


def data(make, inputs):
    found = Data(inputs)
    found.is_class = make is bert
    return found


def train(make, folder, *, resume=None, options=None, **more):
    torch.manual_seed(0)
    model, inputs = make()
    settings = {
        "output_dir": str(folder),
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "weight_decay": 0.1,
        "logging_steps": 4,
        "seed": 0,
    }
    pruning = Pruning(inputs, budget=dp.Budget(macs=0.8), **(options or {}))
    trainer = Trainer(
        model,
        TrainingArguments(**(settings | more)),
        train_dataset=data(make, inputs),
        eval_dataset=data(make, inputs),
        callbacks=[pruning],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer, pruning


@pytest.fixture(autouse=True)
def quiet():
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("transformers").setLevel(logging.ERROR)


def outputs(model, inputs):
    with torch.no_grad():
        return model.eval()(**inputs).logits


def test_a_model_shrinks_to_its_budget_and_comes_back_plain(tmp_path):
    trainer, pruning = train(bert, tmp_path)
    model, pruner = trainer.model, pruning.pruner
    assert list(model.state_dict()) == list(bert()[0].state_dict())
    assert pruner.steps == pruner.controller.budgets[0].steps == STEPS
    assert pruner.history[-1].macs <= 0.8 * pruner.dense.macs
    assert trainer.state.log_history[-1]["diffprune/macs"] <= 0.8
    again = load_pretrained(dp.save_pruned(model, tmp_path / "small"))
    assert torch.equal(outputs(again, bert()[1]), outputs(model, bert()[1]))


@pytest.mark.parametrize(
    "more",
    [
        {"gradient_accumulation_steps": 2},
        {"bf16": True},
        {"gradient_checkpointing": True},
        {"max_grad_norm": 0.0, "lr_scheduler_type": "cosine", "warmup_steps": 3},
    ],
    ids=lambda more: next(iter(more)),
)
def test_options_of_the_trainer(tmp_path, more):
    trainer, pruning = train(bert, tmp_path, **more)
    assert pruning.pruner.steps == trainer.state.global_step == STEPS
    assert pruning.pruner.history[-1].macs <= 0.8 * pruning.pruner.dense.macs


def test_a_run_that_was_interrupted_ends_as_one_that_was_not(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 8}
    whole, _ = train(bert, tmp_path, **saving)
    path = tmp_path / "checkpoint-8"
    again, pruning = train(bert, tmp_path, resume=str(path), **saving)
    assert pruning.pruner.steps == STEPS
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name

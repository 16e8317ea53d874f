"""One callback prunes the model of a Trainer; checkpoints and configs follow."""

import logging

import pytest
import torch
import transformers
from transformers import Trainer, TrainingArguments

import diffprune as dp
from diffprune.errors import ArgumentError
from diffprune.integrations._training import check_processes
from diffprune.integrations.transformers import Pruning, load_pretrained
from several_processes import run

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
        **TEXT,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=4,
        intermediate_size=20,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS}


def vit():
    config = transformers.ViTConfig(
        **SMALL, intermediate_size=24, image_size=8, patch_size=4, num_labels=2
    )
    images = {"pixel_values": torch.linspace(0, 1, 384).view(2, 3, 8, 8)}
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

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 16

    def __getitem__(self, number):
        random = torch.Generator().manual_seed(number)
        if self.make is vit:
            image = torch.rand(3, 8, 8, generator=random)
            return {"pixel_values": image, "labels": number % 2}
        ids = torch.randint(3, 50, (8,), generator=random)
        return {"input_ids": ids, "labels": number % 2 if self.make is bert else ids}


class Age:
    """Evaluations so far: the first checkpoint is the best one."""

    def __init__(self):
        self.count = 0

    def __call__(self, _):
        self.count += 1
        return {"age": self.count}


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
    pruning = Pruning(inputs, **({"budget": dp.Budget(macs=0.8)} | (options or {})))
    trainer = Trainer(
        model,
        TrainingArguments(**(settings | more)),
        train_dataset=Data(make),
        eval_dataset=Data(make),
        compute_metrics=Age(),
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
        pytest.param(
            {"torch_compile": True, "torch_compile_backend": "aot_eager"},
            marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore")],
        ),
    ],
    ids=lambda more: next(iter(more)),
)
def test_options_of_the_trainer(tmp_path, more):
    trainer, pruning = train(bert, tmp_path, **more)
    assert pruning.pruner.steps == trainer.state.global_step == STEPS
    assert pruning.pruner.history[-1].macs <= 0.8 * pruning.pruner.dense.macs


@pytest.mark.parametrize("when", [8, 16], ids=["gated", "folded"])
def test_a_run_that_was_interrupted_ends_as_one_that_was_not(tmp_path, when):
    saving = {"save_strategy": "steps", "save_steps": 8}
    whole, _ = train(bert, tmp_path, **saving)
    path = tmp_path / f"checkpoint-{when}"
    again, pruning = train(bert, tmp_path, resume=str(path), **saving)
    assert pruning.pruner.steps == STEPS
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name


def test_the_best_checkpoint_loads_although_the_model_went_on(tmp_path):
    trainer, pruning = train(
        bert,
        tmp_path,
        save_strategy="steps",
        eval_strategy="steps",
        save_steps=4,
        eval_steps=4,
        load_best_model_at_end=True,
        metric_for_best_model="age",
        greater_is_better=False,
        options={"finalize": False},
    )
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-4")
    assert pruning.pruner.shape().macs > 0.8 * pruning.pruner.dense.macs
    plain = load_pretrained(trainer.state.best_model_checkpoint)
    expected = outputs(trainer.model, bert()[1])
    torch.testing.assert_close(outputs(plain, bert()[1]), expected)


EXPRESSIBLE = {
    bert: {"intermediate_size"},
    llama: {"intermediate_size", "num_attention_heads", "num_key_value_heads"},
    vit: {"intermediate_size"},
    t5: {"d_ff", "d_kv", "num_heads"},
}


@pytest.mark.parametrize(
    "make", [bert, *(pytest.param(m, marks=pytest.mark.slow) for m in (llama, vit, t5))]
)
def test_equal_widths_are_loaded_by_from_pretrained(tmp_path, make):
    options = {"equal_widths": True, "budget": None, "strength": 1.0}
    options |= {"remove_every": 2, "gate_lr_scale": 10.0}
    trainer, _ = train(make, tmp_path, options=options)
    model, whole = trainer.model, make()[0].config
    trainer.save_model(tmp_path / "small")
    again = type(model).from_pretrained(tmp_path / "small")
    changed = {
        name
        for name, value in vars(again.config).items()
        if type(value) is int and getattr(whole, name) != value
    }
    assert changed == EXPRESSIBLE[make]
    assert torch.equal(outputs(again, make()[1]), outputs(model, make()[1]))


def test_a_model_without_a_config_has_no_equal_widths(tmp_path):
    pruning = Pruning(torch.rand(2, 4), strength=1.0, equal_widths=True)
    with pytest.raises(ArgumentError, match="leave them out"):
        Trainer(
            torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)),
            TrainingArguments(str(tmp_path), use_cpu=True, report_to=[]),
            callbacks=[pruning],
        )


def test_optimizers_without_gates_are_refused(tmp_path):
    model, inputs = bert()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    trainer = Trainer(
        model,
        TrainingArguments(str(tmp_path), max_steps=2, use_cpu=True, report_to=[]),
        train_dataset=Data(bert),
        callbacks=[Pruning(inputs, strength=1.0)],
        optimizers=(optimizer, None),
    )
    with pytest.raises(ArgumentError, match="no optimizer trains the gates"):
        trainer.train()


def together(rank, folder):
    saving = {"save_strategy": "steps", "save_steps": 8, "eval_strategy": "steps"}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss"}
    trainer, pruning = train(bert, folder, eval_steps=8, **saving, **best)
    again, resumed = train(bert, folder / "again", resume=folder / "checkpoint-16")
    states = [[p.tolist() for p in one.model.parameters()] for one in (trainer, again)]
    shares = [
        p.pruner.history[-1].macs / p.pruner.dense.macs for p in (pruning, resumed)
    ]
    return states, shares, trainer.args.world_size, rank >= 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_processes_end_with_the_same_small_model(tmp_path):
    first, second = run(together, tmp_path)
    assert first == second
    assert first[2] == 2
    assert first[1][1] <= 0.8


def test_shared_models_are_refused():
    with pytest.raises(ArgumentError, match="2 processes train this model by fsdp"):
        check_processes(2, "fsdp", is_data_parallel=False)

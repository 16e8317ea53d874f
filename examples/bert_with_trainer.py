"""Prune while the Trainer of transformers trains, and load the result anywhere."""

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

import diffprune as dp
from diffprune.integrations.transformers import Pruning


class Words(Dataset[dict[str, torch.Tensor]]):
    """Is the first word a small number?"""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        random = torch.Generator().manual_seed(number)
        ids = torch.randint(100, (8,), generator=random)
        return {"input_ids": ids, "labels": (ids[0] < 50).long()}


config = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
)
ids = torch.arange(16).view(2, 8)
pruning = Pruning(  # new
    {"input_ids": ids}, budget=dp.Budget(parameters=0.85), equal_widths=True
)
trainer = Trainer(
    BertForSequenceClassification(config),
    TrainingArguments(
        "bert",
        max_steps=50,
        learning_rate=3e-3,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
    ),
    train_dataset=Words(),
    callbacks=[pruning],  # new
)
trainer.train()
trainer.save_model("bert/small")

plain = BertForSequenceClassification.from_pretrained("bert/small")
print("intermediate_size of every layer:", plain.config.intermediate_size)

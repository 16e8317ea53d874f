"""Prune while Lightning trains: one callback, and checkpoints that fit."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import diffprune as dp
from diffprune.integrations.lightning import Pruning, load_from_checkpoint


class Digits(lightning.LightningModule):
    """64 pixels -> 128 -> 128 -> 10 digits."""

    def __init__(self) -> None:
        super().__init__()
        self.example_input_array = torch.rand(2, 64)
        self.net = nn.Sequential(
            nn.Linear(64, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Score the ten digits."""
        return self.net(pixels)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Compare with the labels."""
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Train everything, gates included."""
        return torch.optim.AdamW(self.parameters(), lr=5e-3, weight_decay=0.1)


lightning.seed_everything(0, verbose=False)
pixels, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(pixels.float() / 16, labels)
loader = DataLoader(data, batch_size=100, shuffle=True)

pruning = Pruning(budget=dp.Budget(macs=0.25))  # new
trainer = lightning.Trainer(
    max_epochs=8,
    callbacks=[pruning],  # new
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    log_every_n_steps=5,
)
model = Digits()
trainer.fit(model, loader)
print(model)

trainer.save_checkpoint("digits.ckpt")
again = load_from_checkpoint(Digits, "digits.ckpt")
hits = (again(data.tensors[0]).argmax(1) == labels).float().mean()
print(f"{float(hits):.1%} of the training digits")

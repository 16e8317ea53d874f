"""Prune a model that is divided among processes: `fully_shard`, two on this machine.

Start it with `python digits_with_fsdp.py`, which calls
`torchrun --standalone --nproc-per-node=2 digits_with_fsdp.py`.
"""

import subprocess
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import diffprune as dp
from diffprune.integrations.fsdp import load_checkpoint, save_checkpoint

EPOCHS = 8
FOLDER = Path("digits")


def shard(model: nn.Sequential) -> None:
    """Divide the layers, then what is left of the model."""
    for layer in model:
        fully_shard(layer)
    fully_shard(model)


def train() -> None:
    """Train one of the processes."""
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    pixels, labels = map(torch.tensor, load_digits(return_X_y=True))
    data = TensorDataset(pixels.float() / 16, labels)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=50, sampler=sampler)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    budget = dp.Budget(macs=0.25, steps=EPOCHS * len(loader))
    pruner = dp.Pruner(model, data.tensors[0][:2], budget=budget)
    pruner.shard_(shard)  # instead of `shard(model)`
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2))
    start = 0
    if FOLDER.exists():
        start = load_checkpoint(FOLDER, pruner, optimizer)["epoch"]

    for epoch in range(start, EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = cross_entropy(model(x), y) + pruner.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pruner.step(optimizer)
        save_checkpoint(FOLDER, pruner, optimizer, extra={"epoch": epoch + 1})

    small = pruner.finalize()  # plain, and whole on every process
    if distributed.get_rank() == 0:
        print(pruner)
        dp.save_pruned(small, "small")
    distributed.destroy_process_group()


if __name__ == "__main__":
    if distributed.is_torchelastic_launched():
        train()
    else:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command = [*torchrun, "--nproc-per-node=2", __file__]
        subprocess.run(command, check=True)  # noqa: S603 - this very script

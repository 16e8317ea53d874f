"""Prune in a loop with Accelerate, and go on from a saved state."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import diffprune as dp
from diffprune.integrations.accelerate import register

torch.manual_seed(0)
pixels, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(pixels.float() / 16, labels)
loader = DataLoader(data, batch_size=100, shuffle=True)
epochs, accumulated = 8, 2

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
budget = dp.Budget(macs=0.25, steps=epochs * len(loader) // accumulated)
pruner = dp.Pruner(model, data.tensors[0][:2], budget=budget)  # new
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
register(accelerator, pruner, optimizer, model=model)  # new

for epoch in range(epochs):
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(cross_entropy(model(x), y) + pruner.penalty())  # new
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            pruner.step(optimizer)  # new
    if epoch == 3:
        accelerator.save_state("state")

print(pruner.summary())
accelerator.load_state("state")  # units come back
print(pruner.summary())

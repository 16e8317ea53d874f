"""Compile a model that shrinks: one graph for every shape it has."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import diffprune as dp

torch.manual_seed(0)
pixels, labels = map(torch.tensor, load_digits(return_X_y=True))
pixels = pixels.float() / 16
steps = 60

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
pruner = dp.Pruner(model, pixels[:2], strength=3e-4, remove_every=15)
optimizer = torch.optim.AdamW(pruner.parameter_groups(lr=1e-2, gate_lr=5e-2))
compiled = torch.compile(model, backend="aot_eager")  # new; leave out the backend

for batch in torch.randint(len(pixels), (steps, 100)):
    loss = cross_entropy(compiled(pixels[batch]), labels[batch]) + pruner.penalty()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pruner.step(optimizer)

print(pruner.summary())
small = pruner.finalize()
wrong = (small.eval()(pixels).argmax(1) != labels).float().mean()
print(f"{100 * wrong:.1f} % of the training digits are misread")

"""Gates as the paper places them: softmax units with noise, in the forward pass."""

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import diffprune as dp


class Regressor(nn.Module):
    """One hidden layer, gated after its rectifier."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 32)
        self.gate = dp.Gate(32, u="softmax", dropout=0.15)
        self.out = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Predict one number."""
        return self.out(self.gate(self.hidden(x).relu()))


def main() -> None:
    """Fit a function of one input; without penalty, units close where they are idle."""
    torch.manual_seed(0)
    x = torch.randn(1000, 4)
    y = x[:, :1].abs()
    model = Regressor()
    optimizer = torch.optim.Adam(dp.parameter_groups(model, gate_lr=1e-2), lr=1e-2)
    for step in range(401):
        loss = mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            still_open = int(model.gate.is_open().sum())
            print(f"step {step}: loss {loss:.4f}, {still_open} units open")
    print(dp.Pruner(model.eval(), x[:2], strength=1e-5).finalize())


if __name__ == "__main__":
    main()

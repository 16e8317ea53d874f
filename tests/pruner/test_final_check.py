"""`finalize` is certified in full, and certified before anything changes."""

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune.errors import RemovalError

X = torch.linspace(-1, 1, 20).view(4, 5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = (
            nn.Linear(5, 9),
            nn.BatchNorm1d(9),
            nn.Linear(9, 3),
        )

    def forward(self, x):
        return self.down(self.norm(self.up(x)).relu())


def closed(model, **options):
    torch.manual_seed(0)
    pruner = dp.Pruner(model, X, strength=1e-4, **options)
    for gate in pruner.gates.values():
        gate.logits.data[:4] -= 5.0
    return pruner


def test_both_modes_own_inputs_and_scrambled_weights_are_compared():
    pruner = closed(Net())
    pruner.finalize()
    found = pruner.plan.certificate
    assert found is not None
    assert found.dtype == "float64"
    assert found.max_relative < 1e-10
    assert found.doubts == ()
    assert set(found.compared) >= {
        "the example (eval mode)",
        "drawn inputs (eval mode)",
        "drawn inputs (train mode)",
        "drawn inputs (eval mode, scrambled weights)",
        "drawn inputs (train mode, scrambled weights)",
    }


class Sly(Net):
    """Once it is small it does something else, and only for inputs it never saw."""

    def forward(self, x):
        out = super().forward(x)
        if "out_features=9" not in repr(self.up):
            out = out + (x.abs().amax() > 1).to(out)
        return out


def test_what_shows_only_elsewhere_is_found_before_anything_changes():
    pruner = closed(Sly())
    with pytest.raises(RemovalError, match="something else"):
        pruner.finalize()
    assert pruner.model.up.out_features == 9
    assert not pruner.history


def test_noisy_gates_are_compared_in_eval_mode():
    pruner = closed(Net(), gate=lambda group: dp.Gate(group.size, dropout=0.5))
    pruner.finalize()
    found = pruner.plan.certificate
    assert found is not None
    assert "drawn inputs (train mode)" not in found.compared

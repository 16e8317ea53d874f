"""Units pass beside a transformed axis; an axis that is transformed is whole."""

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune.testing import check_removal, check_round_trip

fft = torch.fft
BESIDE = {
    "fft": lambda h: fft.fft(h, dim=0).real,
    "ifft": lambda h: fft.ifft(h, n=2, dim=0).imag,
    "rfft": lambda h: fft.rfft(h, n=4, dim=-2).abs()[:2],
    "irfft": lambda h: fft.irfft(fft.rfft(h, dim=0), n=2, dim=0),
    "hfft": lambda h: fft.hfft(h, n=2, dim=0),
    "ihfft": lambda h: fft.ihfft(h, n=2, dim=0).real.repeat(2, 1)[:2],
    "fft2": lambda h: fft.fft2(h.unflatten(0, (1, 2)), dim=(0, 1)).real.flatten(0, 1),
    "rfftn": lambda h: fft.rfftn(h, dim=(0,)).real,
    "fftn of two": lambda h: fft.fftn(h.mT.unsqueeze(1), s=(1, 2)).real[:, 0].mT,
    "fftshift": lambda h: fft.fftshift(h, dim=0),
    "parts": lambda h: torch.view_as_real(torch.complex(h, h)).sum(-1),
    "pairs": lambda h: torch.view_as_complex(torch.stack([h, h], -1)).abs(),
    "polar": lambda h: torch.polar(h, h).conj().resolve_conj().real,
}
WHOLE = {
    "fft": lambda h: fft.fft(h).real,
    "fftn of all": lambda h: fft.fftn(h).real,
    "fft2": lambda h: fft.fft2(h).real,
    "fftshift of all": fft.fftshift,
    "pairs": lambda h: torch.view_as_complex(h.unflatten(1, (4, 2))).abs().repeat(1, 2),
}


@pytest.mark.parametrize("body", BESIDE.values(), ids=BESIDE)
def test_units_pass_beside_a_transformed_axis(between, sizes, x, body):
    model = between(lambda m, h: m.last(body(h)))
    assert sizes(model) == {"first": 8}
    assert check_removal(model, x).model.first.out_features < 8


@pytest.mark.parametrize("body", WHOLE.values(), ids=WHOLE)
def test_a_transformed_axis_is_whole(between, reason, body):
    why = "takes part in each frequency|change places|real and imaginary|its width"
    model = between(lambda m, h: m.last(body(h)))
    assert any(part in reason(model) for part in why.split("|"))


def test_a_phase_is_not_zero_where_its_unit_is(between, reason):
    def total(m, h):
        phase = torch.complex(h - 1, h).angle()
        return m.last(phase.sum(1, keepdim=True).expand(-1, 8))

    assert "summed over while nothing makes it zero" in reason(between(total))


def test_silence_has_no_frequencies(between, x):
    def total(m, h):
        spectrum = fft.fft(h, dim=0).real
        return m.last(spectrum.sum(1, keepdim=True).expand(-1, 8))

    assert check_removal(between(total), x).model.first.out_features < 8


class ComplexWeights(nn.Module):
    """3 -> fc 7 -> complex (7, 5) -> sizes -> fc 2."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 7), nn.Linear(5, 2)
        self.turn = nn.Parameter(torch.randn(7, 5, dtype=torch.complex64))

    def forward(self, x):
        return self.down(((self.up(x) + 0j) @ self.turn).abs())


def test_complex_weights_are_cut_trained_and_saved():
    torch.manual_seed(0)
    x, model = torch.randn(4, 3), ComplexWeights()
    assert {group.size for group in dp.find_groups(model, x)} == {5, 7}
    check_removal(model, x)
    check_round_trip(ComplexWeights, model, x)
    pruner = dp.Pruner(model, x, budget=dp.Budget(parameters=0.5, steps=5))
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2))
    for _ in range(10):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        pruner.step(optimizer)
    expected = model(x)
    small = pruner.finalize()
    assert small.turn.numel() < 20
    assert small.turn.is_complex()
    torch.testing.assert_close(small(x), expected)

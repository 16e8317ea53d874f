"""Networks that compute with frequencies, and with complex numbers."""

import torch
import torch.nn.functional as F
from torch import nn

from .entry import Entry, at_least, floats


class FourierOperator(nn.Module):
    """2 -> fc 7 -> three frequencies times complex (7, 7), + conv 7 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.lift, self.skip = nn.Linear(2, 7), nn.Conv1d(7, 7, 1)
        self.low = nn.Parameter(torch.randn(7, 7, 3, 2))
        self.head = nn.Linear(7, 5)

    def forward(self, x):
        x = self.lift(x).transpose(1, 2)
        spectrum = torch.fft.rfft(x, norm="ortho")
        kept = torch.zeros_like(spectrum)
        low = spectrum[:, :, :3]
        weights = torch.view_as_complex(self.low)
        kept[:, :, :3] = torch.einsum("bip,iop->bop", low, weights)
        x = torch.fft.irfft(kept, n=x.shape[-1], norm="ortho") + self.skip(x)
        return self.head(F.gelu(x).transpose(1, 2))


class SpectralGate(nn.Module):
    """3 -> fc 11, filtered over two axes by pairs of numbers -> fc 13 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.head = (
            nn.Linear(3, 11), nn.Linear(11, 13), nn.Linear(13, 5)
        )  # fmt: skip
        self.filter = nn.Parameter(torch.randn(4, 3, 11, 2))

    def forward(self, x):
        x = self.fc1(x)
        spectrum = torch.fft.rfft2(x, dim=(1, 2)) * torch.view_as_complex(self.filter)
        x = torch.fft.irfft2(spectrum, s=x.shape[1:3], dim=(1, 2))
        return self.head(F.relu(self.fc2(x)))


class LongConvolution(nn.Module):
    """3 -> fc 2 x 11, one filter as long as the signal for each channel -> fc 5."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 22), nn.Linear(11, 5)
        self.filters = nn.Parameter(torch.randn(11, 6))

    def forward(self, x):
        values, gate = self.up(x).chunk(2, -1)
        length = 2 * x.shape[1]
        signal = torch.fft.rfft(values.mT, n=length)
        product = signal * torch.fft.rfft(self.filters, n=length).conj()
        out = torch.fft.irfft(product, n=length)[..., : x.shape[1]]
        return self.down(out.mT * gate)


class DiagonalStates(nn.Module):
    """3 -> fc 7, a convolution whose filter five complex states make -> fc 2."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 7), nn.Linear(7, 2)
        self.decay, self.turn = (
            nn.Parameter(torch.rand(7, 5)),
            nn.Parameter(torch.rand(7, 5)),
        )
        self.mix = nn.Parameter(torch.randn(7, 5, 2))

    def forward(self, x):
        signal, steps = self.up(x).mT, torch.arange(x.shape[1], dtype=x.dtype)
        rates = torch.complex(-self.decay.exp(), self.turn)
        powers = (rates.unsqueeze(-1) * steps).exp()
        taps = torch.einsum("hn,hnl->hl", torch.view_as_complex(self.mix), powers).real
        spectrum = torch.fft.fft(taps, n=12) * torch.fft.fft(signal, n=12)
        return self.down(torch.fft.ifft(spectrum)[..., : x.shape[1]].real.mT)


class ComplexRotary(nn.Module):
    """12 -> heads of 4, queries and keys turned as complex numbers -> fc 5."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))
        self.out = nn.Linear(12, 5)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, 4) for layer in (self.q, self.k, self.v)
        )
        angles = torch.outer(
            torch.arange(length, dtype=x.dtype), x.new_tensor([1, 0.1])
        )
        turn = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
        q, k = (
            torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (2, 2))) * turn)
            for y in (q, k)
        )
        heads = (y.transpose(1, 2) for y in (q.flatten(-2), k.flatten(-2), v))
        mixed = F.scaled_dot_product_attention(*heads)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Spectrogram(nn.Module):
    """3 -> fc 7 -> fft over time, shifted: size | phase -> fc 5."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 7), nn.Linear(14, 5)

    def forward(self, x):
        spectrum = torch.fft.fftshift(torch.fft.fftn(self.up(x), dim=(1,)), dim=(1,))
        return self.down(torch.cat([spectrum.abs(), spectrum.angle()], -1))


SIGNAL = floats(2, 6, 3)

ENTRIES = {
    "fourier_operator": Entry(FourierOperator, floats(2, 8, 2), expect=at_least(1)),
    "spectral_gate": Entry(SpectralGate, floats(2, 4, 4, 3), expect=at_least(2)),
    "long_convolution": Entry(LongConvolution, SIGNAL, expect=at_least(1)),
    "diagonal_states": Entry(DiagonalStates, SIGNAL, expect=at_least(2)),
    "complex_rotary": Entry(ComplexRotary, floats(2, 6, 12), expect=at_least(1)),
    "spectrogram": Entry(Spectrogram, SIGNAL, expect=at_least(1)),
}

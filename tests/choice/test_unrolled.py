from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune._choice.unrolled import is_recurrent, run_unrolled
from diffprune._choice.watch import Watch


def unrolled(run):
    """What a run returns when its recurrent layers are written out, and how many."""
    seen = []

    def watch(call):
        if not is_recurrent(call):
            return call.run()
        seen.append(call.name)
        return run_unrolled(call, F.linear)

    with Watch(watch):
        return run(), seen


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {}),
        (nn.GRU, {}),
        (nn.RNN, {}),
        (nn.RNN, {"nonlinearity": "relu"}),
    ],
)
@pytest.mark.parametrize(
    ("layers", "both_ways", "bias", "batch_first"),
    [*product((1, 2), (False, True), (True,), (True,)), (2, True, False, False)],
)
def test_layers_compute_the_same(kind, options, layers, both_ways, bias, batch_first):
    torch.manual_seed(0)
    layer = (
        kind(
            5,
            7,
            layers,
            bias=bias,
            batch_first=batch_first,
            bidirectional=both_ways,
            **options,
        )
        .double()
        .eval()
    )
    x = torch.randn(3, 4, 5).double()
    actual, seen = unrolled(lambda: layer(x))
    assert len(seen) == 1
    torch.testing.assert_close(actual, layer(x))


def test_a_given_state_is_used():
    layer = nn.LSTM(5, 7).double()
    x, state = torch.randn(4, 3, 5).double(), torch.randn(2, 1, 3, 7).double()
    actual, _ = unrolled(lambda: layer(x, (state[0], state[1])))
    torch.testing.assert_close(actual, layer(x, (state[0], state[1])))


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_compute_the_same(kind, bias):
    cell, x = kind(5, 7, bias=bias).double(), torch.randn(3, 5).double()
    actual, seen = unrolled(lambda: cell(x))
    assert len(seen) == 1
    torch.testing.assert_close(actual, cell(x))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projections_and_packed_sequences_are_left_alone():
    projected, plain = nn.LSTM(5, 7, proj_size=3), nn.GRU(5, 7)
    x = torch.randn(4, 3, 5)
    packed = nn.utils.rnn.pack_padded_sequence(x, [4, 3, 2])
    assert unrolled(lambda: projected(x))[1] == []
    assert unrolled(lambda: plain(packed))[1] == []

import pytest
import torch
from torch import nn


class Stepwise(nn.Module):
    """3 -> cell 7, from a given state or from zeros -> fc 2 of the last state."""

    def __init__(self, cell, start):
        super().__init__()
        self.cell, self.start, self.last = cell(3, 7), start, nn.Linear(7, 2)

    def forward(self, x):
        state = self.start(x)
        for step in x.unbind(1):
            state = self.cell(step, state)
        hidden = state[0] if isinstance(state, tuple) else state
        return self.last(hidden)


@pytest.fixture
def sequence():
    return torch.randn(2, 4, 3, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projections_stay_whole_however_many_weights_there_are(sizes, sequence, bias):
    class Projected(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(
                3, 7, 4, bias=bias, batch_first=True, bidirectional=True, proj_size=5
            )
            self.next, self.last = nn.Linear(10, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.last(self.next(self.layer(x)[0][:, -1]))

    assert sizes(Projected().double(), sequence) == {"next": 6}


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_lose_units(sizes, sequence, cell):
    model = Stepwise(cell, start=lambda _: None).double()
    assert sizes(model, sequence) == {"cell": 7}


def test_a_state_that_starts_loud_stays_so(sizes, sequence):
    class Summed(Stepwise):
        def forward(self, x):
            state = torch.ones(2, self.cell.hidden_size, dtype=x.dtype)
            return self.cell(x[:, 0], state).sum(1)

    assert sizes(Summed(nn.GRUCell, None).double(), sequence) == {}


@pytest.mark.filterwarnings("ignore:.*_flat_weights")
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers_lose_units(sizes, sequence, layer, bidirectional):
    class Read(nn.Module):
        def __init__(self):
            super().__init__()
            options = {"batch_first": True, "bidirectional": bidirectional}
            self.layer = layer(3, 7, **options)
            self.last = nn.Linear(14 if bidirectional else 7, 2)

        def forward(self, x):
            return self.last(self.layer(x)[0])

    assert sizes(Read().double(), sequence) == {"layer": 7}


@pytest.mark.filterwarnings("ignore:.*_flat_weights")
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_steps_of_a_sequence_stay_even_where_a_layer_makes_them(
    sizes, sequence, layer, batch_first
):
    class Mixed(nn.Module):
        """Steps 4 -> fc 5 steps -> recurrent 7 -> fc 2 over all steps."""

        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(4, 5)
            self.layer = layer(3, 7, batch_first=batch_first)
            self.last = nn.Linear(35, 2)

        def forward(self, x):
            steps = self.mix(x.mT).mT
            steps = steps if batch_first else steps.transpose(0, 1)
            states = self.layer(steps)[0]
            states = states if batch_first else states.transpose(0, 1)
            return self.last(states.flatten(1))

    assert sizes(Mixed().double(), sequence) == {"layer": 7}

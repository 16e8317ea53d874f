import torch
from torch import nn

from diffprune.lab.report.diagram import diagram, units_by_layer

TIMES = "\N{MULTIPLICATION SIGN}"


class Branches(nn.Module):
    """A block with a shortcut, one with a skip, and a head that runs twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 3, padding=1)
        self.norm = nn.BatchNorm2d(5)
        self.left = nn.Conv2d(5, 7, 3, padding=1)
        self.right = nn.ConvTranspose2d(7, 11, 1)
        self.shortcut = nn.Conv2d(5, 11, 1)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(11, 11))

    def forward(self, x):
        x = self.norm(self.stem(x)).relu()
        x = self.right(self.left(x).relu()) + self.shortcut(x)
        x = x.mean((2, 3))
        return self.head(self.head(x)) * x


def test_layers_are_blocks_and_branches_are_beside_each_other():
    blocks = diagram(Branches(), torch.rand(1, 3, 4, 4))
    places = {block.name: (block.row, block.lane) for block in blocks}
    assert places["left"] == (2, 0)
    assert places["shortcut"] == (2, 1)
    names = [block.name for block in blocks]
    plus, times = names.index("+"), names.index(TIMES)
    assert {names[s] for s in blocks[plus].sources} == {"right", "shortcut"}
    assert plus in blocks[times].sources
    assert blocks[-1].sources == (times,)


def test_units_are_those_that_a_layer_gives_each_time_it_runs():
    assert units_by_layer(diagram(Branches(), torch.rand(1, 3, 4, 4))) == {
        ("stem", 0): 5,
        ("left", 0): 7,
        ("right", 0): 11,
        ("shortcut", 0): 11,
        ("head", 0): 11,
        ("head", 1): 11,
    }


def test_no_two_blocks_are_in_one_place():
    def tower(width):
        return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 3))

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.towers = nn.ModuleList(map(tower, (2, 3, 5, 7)))

        def forward(self, x):
            return torch.cat([tower(x) for tower in self.towers], dim=1)

    blocks = diagram(Towers(), torch.rand(1, 2))
    assert len({(block.row, block.lane) for block in blocks}) == len(blocks)
    assert {block.lane for block in blocks} == {0, 1, 2, 3}
    assert blocks[-2].name == "concat"


def test_a_recurrent_layer_gives_its_hidden_units():
    model = nn.Sequential(nn.LSTM(3, 5, batch_first=True))
    assert [b.units for b in diagram(model, torch.rand(1, 4, 3))][1] == 5

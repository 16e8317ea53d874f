import pytest
import torch
from torch import nn

from diffprune._graph import find_groups
from diffprune._surgery.dead_units import needed, silencer_of
from diffprune._surgery.replacement_modules import Stub
from diffprune._surgery.residual_branches import call_shapes, silent_branches

X = torch.rand(2, 3, 8, 8)


class Block(nn.Module):
    """
    3 -> conv 5 -+-> conv 7 -> ReLU -> conv -> zero -(+)-> conv 2
                 +-----------------------------------+
    """

    def __init__(self, width=5, **options):
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 1)
        self.conv1 = nn.Conv2d(5, 7, 3, padding=1)
        self.conv2 = nn.Conv2d(7, width, 3, **{"padding": 1, **options})
        self.act, self.skip = nn.ReLU(), nn.Identity()
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        x = self.stem(x)
        return self.head(self.skip(x) + self.branch(x))

    def branch(self, x):
        return self.conv2(self.act(self.conv1(x)))


class Peeking(Block):
    """Returns something from inside the branch."""

    def forward(self, x):
        hidden = self.conv1(self.stem(x))
        return self.head(self.stem(x) + self.conv2(hidden)), hidden.mean()


class Shared(Block):
    """Calls the first layer twice."""

    def branch(self, x):
        return self.conv2(self.act(self.conv1(x)) + self.conv1(x))


class Auxiliary(Block):
    """Has a second head that nobody listens to in eval mode."""

    def __init__(self, *, listens):
        super().__init__()
        self.aux, self.listens = nn.Conv2d(7 if listens else 5, 2, 1), listens

    def forward(self, x):
        x = self.stem(x)
        hidden = self.conv1(x)
        out = self.head(x + self.conv2(self.act(hidden)))
        aux = self.aux(hidden if self.listens else x)
        return (out, aux) if self.training else out


class Multiplied(Block):
    """The zero is a factor, not a term."""

    def forward(self, x):
        x = self.stem(x)
        return self.head(x * self.branch(x))


class Normalised(Block):
    """The zero is normalised before it is added."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(5)

    def branch(self, x):
        return self.norm(super().branch(x))


def found(model):
    with torch.no_grad():
        model.conv2.weight.zero_()
        model.conv2.bias.zero_()
    groups = find_groups(model, X)
    silencer = silencer_of(model, groups.solution)
    return silent_branches(silencer, model, X)


@pytest.mark.parametrize("block", [Block, Normalised])
def test_all_modules_that_only_make_the_zero_are_found(block):
    (branch,) = found(block())
    assert branch.paths == ("conv1", "act", "conv2")
    assert (branch.last, branch.ends) == ("conv2", (Stub(),))


def test_what_is_read_elsewhere_stays():
    (branch,) = found(Peeking())
    assert branch.paths == ("conv2",)


def test_what_is_called_twice_stays():
    (branch,) = found(Shared())
    assert branch.paths == ("act", "conv2")


@pytest.mark.parametrize(
    ("listens", "paths"), [(True, ("act", "conv2")), (False, ("conv1", "act", "conv2"))]
)
def test_what_training_needs_stays(listens, paths):
    (branch,) = found(Auxiliary(listens=listens))
    assert branch.paths == paths


def test_a_zero_that_is_not_added_is_no_branch():
    assert found(Multiplied()) == []


def test_a_model_without_zeros_has_no_such_branch():
    model = Block()
    groups = find_groups(model, X)
    silencer = silencer_of(model, groups.solution)
    assert silent_branches(silencer, model, X) == []


class Projected(Block):
    """5 -> 11 at half the resolution, on both sides of the sum."""

    def __init__(self, padding=1):
        super().__init__(width=11, stride=2, padding=padding)
        self.skip = nn.Conv2d(5, 11, 3, stride=2, padding=padding)


def test_other_shapes_are_made_from_strides_and_widths():
    (branch,) = found(Projected())
    assert branch.ends == (Stub((2, 2), 6), Stub())


def test_other_shapes_are_not_guessed():
    (branch,) = found(Projected(padding=0))
    assert branch.ends == (Stub(),)


class Calls(nn.Module):
    """Calls modules in every way there is."""

    def __init__(self):
        super().__init__()
        for name in ("once", "twice", "by_name", "in_tuple"):
            setattr(self, name, nn.Identity())
        self.two = nn.Bilinear(3, 3, 3)
        self.many = nn.LSTM(3, 5)

    def forward(self, x):
        x = self.two(self.once(x), self.twice(self.twice(x)))
        self.many(x)
        return self.by_name(input=x), self.in_tuple((x,))


def test_only_plain_calls_have_shapes():
    shapes = call_shapes(Calls(), torch.rand(2, 3))
    assert shapes == {"once": ((2, 3), (2, 3))}


def test_nothing_behind_a_zero_is_needed():
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    zero = graph.call_function(torch.relu, (x,))
    total = graph.call_function(torch.add, (y, zero))
    out = graph.output(total)
    assert needed(graph, [zero]) == {out, total, y, zero}
    assert needed(graph, []) == {out, total, y, zero, x}


class OnlyInTraining(Block):
    """Has a second head that is called in train mode alone, zero at first."""

    def __init__(self, *, listens):
        super().__init__()
        self.aux, self.listens = nn.Conv2d(7 if listens else 5, 2, 1), listens
        nn.init.zeros_(self.aux.weight)

    def forward(self, x):
        x = self.stem(x)
        hidden = self.conv1(x)
        out = self.head(x + self.conv2(self.act(hidden)))
        if self.training:
            return out, self.aux(hidden if self.listens else x)
        return out


@pytest.mark.parametrize("listens", [True, False])
def test_what_only_training_reads_stays(listens):
    assert len(found(OnlyInTraining(listens=listens))) == (not listens)

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune import find_groups, remove
from diffprune._graph.model_runs import mode
from diffprune._graph.tracing import mode_readers, trace
from diffprune.errors import ArgumentError, TraceError


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)
        self.calls = 0
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen.add_(1)
        return self.layer(x) if x.sum() > 0 else x


class Auxiliary(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 7), nn.Linear(7, 3)
        self.auxiliary = nn.Linear(7, 2)

    def forward(self, x):
        hidden = self.body(x).relu()
        out = self.head(hidden)
        return (out, self.auxiliary(hidden)) if self.training else out


class Choosing(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 7), nn.Linear(7, 3)

    def forward(self, x):
        chosen = torch.cond(x.sum() > 0, torch.relu, torch.sin, (self.up(x),))
        return self.down(chosen)


class Keeping(nn.Module):
    """Keeps what it computed: as an attribute, in a list, in a nested dict."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 7), nn.Linear(7, 3)
        self.seen, self.notes = [], {"deep": {}}

    def forward(self, x):
        self.last = self.up.last = self.up(x).relu()
        self.seen.append(self.last)
        self.notes["deep"]["last"] = self.last
        return self.down(self.last)


def test_nothing_of_a_trace_stays_on_a_model():
    model = Keeping()
    groups = find_groups(model, torch.rand(2, 4))
    assert groups.sizes == {"up": 7}
    assert not hasattr(model, "last")
    assert not hasattr(model.up, "last")
    assert (model.seen, model.notes) == ([], {"deep": {}})
    model(torch.rand(2, 4))
    last = model.last
    trace(model, torch.rand(2, 4))
    assert model.last is last
    assert model.seen == [last]


@dataclass
class Unregistered:
    logits: torch.Tensor


@dataclass
class Registered:
    logits: torch.Tensor


class Returning(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.up, self.down, self.kind = nn.Linear(4, 7), nn.Linear(7, 3), kind

    def forward(self, x):
        return self.kind(self.down(self.up(x).relu()))


def state(model):
    flags = [module.training for module in model.modules()]
    attributes = [dict(vars(module)) for module in model.modules()]
    keys = [sorted(entries) for entries in attributes]
    integers = [
        {k: (type(v), v) for k, v in entries.items() if isinstance(v, int)}
        for entries in attributes
    ]
    return flags, keys, integers, {k: v.clone() for k, v in model.state_dict().items()}


def ctc(scores):
    lengths = torch.ones(1, dtype=torch.long)
    targets = torch.ones(1, 1, dtype=torch.long)
    return F.ctc_loss(scores.log_softmax(-1)[:, None], targets, 2 * lengths, lengths)


FAILING = {
    "branches on values": (
        Branching,
        (2, 4),
        TraceError,
        "Branching cannot be traced: .*\n.*branches on the values of a tensor",
    ),
    "inputs do not fit": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)),
        (2, 7),
        ArgumentError,
        "does not accept the example inputs: RuntimeError: mat1 and mat2",
    ),
    "DataParallel": (
        lambda: nn.DataParallel(nn.Linear(4, 5)),
        (2, 4),
        ArgumentError,
        r"wrapped in DataParallel.*\nPass the module inside it, `model.module`",
    ),
    "compiled": (
        lambda: torch.compile(nn.Linear(4, 5)),
        (2, 4),
        ArgumentError,
        r"made by `torch.compile`.*\nPass the module inside it, `model._orig_mod`",
    ),
    "meta": (
        lambda: nn.Linear(4, 5, device="meta"),
        (2, 4),
        ArgumentError,
        r"`weight` of the model is on the meta device.*\nFirst give it some: ",
    ),
    "lazy": (
        lambda: nn.LazyLinear(5),
        (2, 4),
        ArgumentError,
        "`weight` of the model has no shape yet: its layer is lazy",
    ),
    "cond": (
        Choosing,
        (2, 4),
        TraceError,
        "Choosing cannot be traced: .*\n.*`torch.cond`.*Prune the submodules",
    ),
    "unknown output": (
        lambda: Returning(Unregistered),
        (2, 4),
        TraceError,
        r"Returning cannot be traced: .*\n.*register_dataclass\(TheClass\)`",
    ),
    "distribution": (
        lambda: Returning(lambda mean: torch.distributions.Normal(mean, 1.0)),
        (2, 4),
        TraceError,
        r"this more ergonomic to deal with\n.*with a distribution, return its tensors",
    ),
    "gradient": (
        lambda: Returning(
            torch.func.grad(lambda x: F.linear(x, torch.ones(1, 3)).sum())
        ),
        (2, 4),
        TraceError,
        r"Returning cannot be traced: .*\n.*`torch.func` to differentiate a part",
    ),
    "tangent": (
        lambda: Returning(torch.func.jacfwd(torch.sum)),
        (2, 4),
        TraceError,
        r"Returning cannot be traced: .*\n.*`torch.func` to differentiate a part",
    ),
    "ctc": (
        lambda: Returning(ctc),
        (2, 4),
        TraceError,
        r"Returning cannot be traced: .*\n.*computes a CTC loss.*log probabilities",
    ),
    "inference": (
        torch.inference_mode()(lambda: nn.Linear(4, 5)),
        (2, 4),
        ArgumentError,
        r"`weight` was made within `torch.inference_mode\(\)`.*\nBuild or load",
    ),
}


# `torch.compile` imports parts of torch that warn about themselves.
@pytest.mark.filterwarnings("ignore:.torch.jit.script(_method)?. is deprecated")
@pytest.mark.parametrize(
    ("build", "shape", "error", "message"), FAILING.values(), ids=FAILING
)
def test_failures_say_what_to_do(build, shape, error, message):
    with pytest.raises(error, match=message):
        find_groups(build(), torch.rand(shape))


def test_a_dataclass_that_torch_knows_is_looked_into():
    torch.export.register_dataclass(Registered)
    model, x = Returning(Registered), torch.rand(2, 4)
    small = remove(model, x, keep={"up": torch.arange(7) < 3})
    assert small.up.out_features == 3
    assert isinstance(small(x), Registered)


@pytest.mark.parametrize("name", ["branches on values", "inputs do not fit", "cond"])
def test_failures_change_nothing(name, heard):
    build, shape, error, _ = FAILING[name]
    model = build()
    next(model.modules()).training = False
    before = state(model)
    with pytest.raises(error):
        find_groups(model, torch.rand(shape))
    assert str(state(model)) == str(before)
    assert not [record for record in heard if record.levelno > logging.DEBUG]
    assert logging.root.manager.disable == logging.NOTSET


def test_success_changes_nothing():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    model[1].eval()
    before = state(model)
    find_groups(model, torch.rand(3, 4))
    assert str(state(model)) == str(before)


def test_parameters_read_in_training_only_are_traced_too():
    assert len(trace(Auxiliary(), torch.rand(2, 4))) == 2
    axes = find_groups(Auxiliary(), torch.rand(2, 4))["body"].axes
    assert ("auxiliary.weight", 1) in [(axis.tensor, axis.dim) for axis in axes]


def test_one_trace_is_enough_when_it_reads_everything():
    assert len(trace(nn.Linear(4, 3), torch.rand(2, 4))) == 1


class Plain(nn.Module):
    """A class of the user's own that has no moods."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 7), nn.Linear(7, 3)
        self.scale = 1.0

    def forward(self, x):
        return self.down(self.up(x).relu() * self.scale)


class Switched(Plain):
    """It never looks at the flag: setting the mode changes something else."""

    def train(self, mode=True):  # noqa: FBT002 - the form torch calls
        self.noise = mode
        return super().train(mode)

    def forward(self, x):
        hidden = self.up(x)
        return self.down(hidden + torch.ones(7) if self.noise else hidden)


@pytest.mark.parametrize(("kind", "count"), [(Plain, 1), (Switched, 2)])
def test_modes_are_traced_apart_only_where_a_model_tells_them_apart(kind, count):
    assert len(trace(kind(), torch.rand(2, 4))) == count


def test_to_set_the_mode_is_not_to_go_by_it():
    with mode_readers() as readers, mode(Plain(), training=True):
        pass
    assert not readers


def test_tied_parameters_are_read_by_any_name():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert len(trace(model, torch.rand(2, 4))) == 1


def small(_):
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def test_threads_may_trace_at_once():
    models = map(small, range(4))
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda model: find_groups(model, torch.rand(2, 3)), models)
    assert [dict(groups.sizes) for groups in found] == [{"0": 8}] * 4
    assert logging.root.manager.disable == 0


class Drops(nn.Module):
    """Leaves a layer out at random, by the value of a tensor."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        y = self.first(x).relu()
        if self.training and torch.rand(()) < 0.5:
            y = y.tanh()
        return self.last(y)


def test_a_trace_that_fails_prints_nothing(capfd):
    assert len(trace(Drops(), torch.rand(2, 3))) == 1
    assert capfd.readouterr() == ("", "")


class Data(nn.Module):
    """4 -> fc 7, seen past autograd by some function -> fc 3."""

    def __init__(self, body):
        super().__init__()
        self.up, self.down, self.body = nn.Linear(4, 7), nn.Linear(7, 3), body

    def forward(self, x):
        return self.down(self.body(self.up(x)))


PAST_AUTOGRAD = {
    "read": lambda h: h * (h > 0).type_as(h.data),
    "scaled": lambda h: (h.data.mul_(2.0), h)[1],
    "shifted": lambda h: (h.data.add_(2.0), h)[1],
}


@pytest.mark.parametrize("body", PAST_AUTOGRAD.values(), ids=PAST_AUTOGRAD)
def test_data_is_read_and_written_like_the_tensor_itself(body):
    small = remove(Data(body), torch.rand(2, 4), keep={"up": torch.arange(7) < 3})
    assert small.up.out_features == 3

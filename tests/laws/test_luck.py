"""Removal does not depend on luck: examples, weights and modes that say little.

Every network here once came out wrong, or crashed, because the example did not show it:
an example or a last layer of zeros, a mode that nobody ran, a layer called twice.
Each of them must now be exact on other inputs, in both modes, or be refused.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import diffprune as dp
from diffprune import surgery, testing
from diffprune.errors import ArgumentError, RemovalError
from diffprune.surgery import removal

Linear, Conv = nn.Linear, nn.Conv2d


def network(forward, **parts):
    """A module with these parts and this forward, in double precision."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *args, **kwargs):
            return forward(self, *args, **kwargs)

    return Network().double().eval()


def vectors(rows=2):
    return torch.randn(rows, 8, dtype=torch.float64)


def half(groups):
    return {g.name: torch.arange(g.size) < max(1, g.size // 2) for g in groups}


@pytest.fixture(autouse=True)
def _same_weights():
    torch.manual_seed(0)


# --- A width in the arithmetic, and an example that hides it -----------------

WIDTHS = {
    "reciprocal": lambda y, n: y * (1.0 / n),
    "float times": lambda y, n: y * (0.5 * n),
    "logarithm": lambda y, n: y * math.log(n),
    "root": lambda y, n: y / math.sqrt(n),
    "absolute": lambda y, n: y * abs(n),
    "shift": lambda y, n: y * (n >> 1),
    "power": lambda y, n: y * 2 ** (n // 4),
    "divmod": lambda y, n: y * divmod(n, 5)[1],
    "less": lambda y, n: y * (2.0 if n < 9 else 3.0),
    "equal": lambda y, n: y * (2.0 if n == 12 else 3.0),
    "unequal": lambda y, n: y * (2.0 if n != 12 else 3.0),
    "member": lambda y, n: y * (2.0 if n in {6, 12} else 3.0),
    "largest": lambda y, n: y * max(n, 9),
    "range": lambda y, n: y * sum(range(n)),
    "string": lambda y, n: y * len("x" * n),
    "numel": lambda y, n: y * torch.numel(y[:1]),  # noqa: ARG005 - n is read from y
    "shape numel": lambda y, n: y * y[:1].shape.numel(),  # noqa: ARG005
    "stride": lambda y, n: y * y.stride(0),  # noqa: ARG005
    "bits": lambda y, n: y * (n & 7),
    "rounded": lambda y, n: y * round(n * 0.3),
}


def scaled(scale, *, bias):
    return network(
        lambda s, x: s.h(scale(y := s.a(x).relu(), y.shape[1])),
        a=Linear(8, 12, bias=bias),
        h=Linear(12, 3, bias=bias),
    )


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("example", ["random", "zero", "zero head"])
def test_a_width_in_the_arithmetic_never_passes(name, example):
    model = scaled(WIDTHS[name], bias=example != "zero")
    x = vectors() * (example != "zero")
    if example == "zero head":
        nn.init.zeros_(model.h.weight)
    groups = dp.find_groups(model, x)
    if not list(groups):
        return
    with pytest.raises(RemovalError, match="something else"):
        dp.remove(model, x, keep=half(groups))


def test_an_example_of_no_rows_is_refused():
    model = scaled(WIDTHS["less"], bias=True)
    with pytest.raises(ArgumentError, match="the example inputs hold no numbers"):
        dp.find_groups(model, vectors(0))


@pytest.mark.parametrize("x", [torch.zeros(2, 8), torch.zeros(1, 8)])
def test_examples_that_say_nothing_do_for_right_removals(x):
    model = network(
        lambda s, x: s.h(s.a(x).relu()), a=Linear(8, 12, bias=False), h=Linear(12, 3)
    )
    nn.init.zeros_(model.h.weight)
    x = x.double()
    result = testing.check_removal(model, x)
    certificate = result.plan.certificate
    assert certificate.max_relative < 1e-10
    assert any("scrambled" in name for name in certificate.compared)
    assert certificate.doubts


# --- Comparisons that could not fail -----------------------------------------


def removed(model, x):
    groups = dp.find_groups(model, x)
    return removal(model, x, groups, keep=half(groups)).plan.certificate


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (lambda y: y * 0, "outputs do not depend on"),
        (lambda y: y * torch.nan, "infinite or NaN"),
        (lambda y: y[:0], "returns no numbers"),
    ],
    ids=["constant", "nan", "nothing"],
)
def test_what_could_not_have_failed_is_never_called_equal(last, why):
    model = network(
        lambda s, x: last(s.h(s.a(x).relu())), a=Linear(8, 12), h=Linear(12, 3)
    )
    certificate = removed(model, vectors())
    assert certificate.is_vacuous
    assert math.isnan(certificate.max_absolute)
    assert why in str(certificate)
    assert str(certificate).startswith("nothing was shown")


def test_inputs_of_our_own_stay_where_the_model_is_defined():
    """Logarithms, look-ups and masks take no other inputs than their own kind."""
    model = network(
        lambda s, x, words, shown: s.h(
            (s.a(x.log()) + s.e(words)).relu().masked_fill(~shown[:, None], 0.0)
        ),
        a=Linear(8, 12),
        e=nn.Embedding(9, 12),
        h=Linear(12, 3),
    )
    x = vectors().abs() + 0.1
    words, shown = torch.tensor([3, 8]), torch.tensor([True, False])
    certificate = removed(model, (x, words, shown))
    assert certificate.max_relative < 1e-10
    assert not certificate.doubts


# --- Train mode ---------------------------------------------------------------


class Gated(nn.Module):
    """Adds something to its input in training alone."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, y):
        return self.function(y) if self.training else y


ONLY_IN_TRAINING = {
    "mean": lambda y: y - y.mean(1, keepdim=True),
    "norm": lambda y: F.normalize(y, dim=1),
    "softmax": lambda y: y * y.softmax(1),
    "scale": lambda y: y / y.shape[1],
    "fixed noise": lambda y: y * (torch.randn(y.shape[0], 12, dtype=y.dtype) * 0.1 + 1),
    "noise and mean": lambda y: (y + torch.randn_like(y)).mean(1, keepdim=True) + y,
    "alpha dropout and sum": lambda y: F.alpha_dropout(y, 0.5).sum(1, keepdim=True) + y,
}


@pytest.mark.parametrize("name", ONLY_IN_TRAINING)
def test_what_happens_only_in_training_is_exact_there_or_refused(name):
    layer = Gated(ONLY_IN_TRAINING[name])
    model = network(
        lambda s, x: s.h(s.g(s.a(x).relu())), a=Linear(8, 12), g=layer, h=Linear(12, 3)
    )
    groups = dp.find_groups(model, vectors())
    assert not list(groups) or name == "norm"  # to which zeros add nothing
    testing.check_removal(model, vectors(), groups=groups)


def test_noise_of_the_width_of_an_attribute_follows_a_cut():
    def forward(s, x):
        y = s.a(x).relu()
        if s.training:
            y = y * (torch.randn(x.shape[0], s.width, dtype=y.dtype) * 0.1 + 1)
        return s.h(y)

    model = network(forward, a=Linear(8, 12), h=Linear(12, 3), width=12)
    small = testing.check_removal(
        model, vectors(), keep={"a": torch.arange(12) < 5}
    ).model
    assert small.width == 5
    assert small.train()(vectors()).shape == (2, 3)


def test_alpha_dropout_is_exact_in_front_of_a_layer():
    model = nn.Sequential(
        Linear(8, 12), nn.SELU(), nn.AlphaDropout(0.5), Linear(12, 3)
    ).double()
    testing.check_removal(model, vectors(), keep={"0": torch.arange(12) < 5})


def test_a_pruner_trains_on_after_a_cut_of_what_is_noisy_in_training():
    def forward(s, x):
        y = s.a(x).relu()
        if s.training:
            y = y * (torch.randn(x.shape[0], s.width, dtype=y.dtype) * 0.1 + 1)
        return s.h(y)

    model = network(forward, a=Linear(8, 12), h=Linear(12, 3), width=12).train()
    pruner = dp.Pruner(model, vectors(), strength=1e-3)
    with torch.no_grad():
        next(iter(pruner.gates.values())).logits[:6] = -9.0
    record = pruner.remove_closed_()
    assert any("train" in name for name in record.certificate.compared)
    model(vectors()).sum().backward()
    assert model.width == 6


def test_batches_of_one_are_doubled_for_statistics():
    model = nn.Sequential(
        Conv(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), Linear(12, 10), nn.BatchNorm1d(10), nn.ReLU(), Linear(10, 2),
    ).double()  # fmt: skip
    certificate = removed(model, torch.randn(1, 3, 6, 6, dtype=torch.float64))
    assert not certificate.doubts
    assert any("train" in name for name in certificate.compared)


# --- compact: called twice, aliased, transposed, grouped ----------------------


def other_outputs(model, small, *shape):
    """The largest difference on inputs that nobody has seen."""
    x = torch.randn(64, *shape, dtype=torch.float64) * 2
    with torch.no_grad():
        expected, actual = model(x), small(x)
    return max(
        float((a - b).abs().max()) for a, b in zip([*expected], [*actual], strict=True)
    )


def silence_(layer, units, bias=-0.1):
    with torch.no_grad():
        layer.weight[:units] = 0
        layer.bias[:units] = bias


def two_encoders():
    model = network(
        lambda s, x: s.b(s.a1(x).relu()) + s.b(s.a2(x).relu()),
        a1=Linear(8, 32), a2=Linear(8, 32), b=Linear(32, 3),
    )  # fmt: skip
    silence_(model.a2, 16)
    return model, (8,)


def called_in_turn():
    model = network(
        lambda s, x: s.h(s.b(s.b(s.a(x).relu()).relu()).relu()),
        a=Linear(8, 12), b=Linear(12, 12), h=Linear(12, 3),
    )  # fmt: skip
    silence_(model.b, 6)
    return model, (8,)


def pyramid():
    model = network(
        lambda s, x: torch.cat(
            [
                s.h(s.p3(x).relu()).flatten(1),
                s.h(s.p4(F.max_pool2d(x, 2)).relu()).flatten(1),
            ],
            dim=1,
        ),
        p3=Conv(3, 24, 3, padding=1), p4=Conv(3, 24, 3, padding=1), h=Conv(24, 4, 1),
    )  # fmt: skip
    silence_(model.p4, 12)
    with torch.no_grad():
        model.p3.bias[:12] -= 1.5
    return model, (3, 8, 8)


def weight_used_outside():
    model = network(
        lambda s, x: s.b(s.a2(x).relu()) + F.linear(s.a1(x).relu(), s.b.weight),
        a1=Linear(8, 12), a2=Linear(8, 12), b=Linear(12, 3),
    )  # fmt: skip
    silence_(model.a2, 6)
    return model, (8,)


def shared_weight():
    model = network(
        lambda s, x: s.b(s.a2(x).relu()) + s.c(s.a1(x).relu()),
        a1=Linear(8, 12), a2=Linear(8, 12), b=Linear(12, 3), c=Linear(12, 3),
    )  # fmt: skip
    model.c.weight = model.b.weight
    silence_(model.a2, 6)
    return model, (8,)


def shared_bias():
    model = network(
        lambda s, x: s.b(y := s.a(x).relu()) + s.c(y),
        a=Linear(8, 12), b=Linear(12, 3), c=Linear(12, 3),
    )  # fmt: skip
    model.c.bias = model.b.bias
    silence_(model.a, 6, bias=0.4)
    return model, (8,)


def named_argument():
    model = network(
        lambda s, x: s.b(input=s.a(x).relu()), a=Linear(8, 12), b=Linear(12, 3)
    )
    silence_(model.a, 6, bias=0.4)
    return model, (8,)


def aliased(change):
    def build():
        def forward(s, x):
            y = s.a(x)
            read = change(y, s.b(x))
            return s.h(read)

        model = network(forward, a=Linear(8, 12), b=Linear(8, 12), h=Linear(12, 3))
        with torch.no_grad():
            model.a.weight[:5] = 0
        return model, (8,)

    return build


def view_then_add(y, b):
    v = y.view(y.shape)
    y.add_(b)
    return v


def add_to_view(y, b):
    y.view(-1, 12).add_(b)
    return y


def part_of_a_view(y, b):
    y[:, :6].mul_(b[:, :6])
    return y


def transposed_view(y, b):
    y.t().add_(b.t())
    return y


def copied_in(y, b):
    z = torch.zeros_like(y)
    v = z[:, :8]
    v.copy_(b[:, :8])
    return z + y


def filled(y, b):
    z = y.detach()
    z[:, 2:4] = b[:, 2:4]
    return y


def transposed(channels, bias):
    def build():
        model = nn.Sequential(
            Conv(3, 12, 3), nn.ReLU(), nn.ConvTranspose2d(12, channels, 3), nn.ReLU(),
            Conv(channels, 2, 1),
        ).double().eval()  # fmt: skip
        silence_(model[0], 6, bias)
        return model, (3, 8, 8)

    return build


def grouped():
    model = nn.Sequential(
        Conv(3, 12, 3), nn.ReLU(), Conv(12, 8, 3, groups=2), nn.ReLU(), Conv(8, 2, 1)
    ).double().eval()  # fmt: skip
    with torch.no_grad():
        model[0].weight[[0, 1, 6, 7]] = 0
        model[0].bias[[0, 1, 6, 7]] = -0.1
    return model, (3, 8, 8)


def recurrent():
    model = network(
        lambda s, x: s.h(s.r(s.a(x).relu())[0][:, -1]),
        a=Linear(8, 12), r=nn.LSTM(12, 7, batch_first=True), h=Linear(7, 3),
    )  # fmt: skip
    silence_(model.a, 6, bias=0.3)
    return model, (5, 8)


COMPACTED = {
    "two encoders": two_encoders,
    "called in turn": called_in_turn,
    "pyramid": pyramid,
    "weight used outside": weight_used_outside,
    "shared weight": shared_weight,
    "shared bias": shared_bias,
    "named argument": named_argument,
    "view, then add": aliased(view_then_add),
    "add to a view": aliased(add_to_view),
    "part of a view": aliased(part_of_a_view),
    "transposed view": aliased(transposed_view),
    "copied in": aliased(copied_in),
    "filled": aliased(filled),
    "transposed, silent": transposed(8, -0.1),
    "transposed, square": transposed(12, -0.1),
    "transposed, zero": transposed(8, 0.0),
    "transposed, constant": transposed(12, 0.5),
    "grouped": grouped,
    "recurrent": recurrent,
}
SHRINK = (
    "named argument",
    "transposed, silent",
    "transposed, square",
    "transposed, zero",
)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("name", COMPACTED)
def test_compact_computes_what_the_original_does_on_other_inputs(name, rows):
    model, shape = COMPACTED[name]()
    before = copy.deepcopy(model)
    small = dp.compact(model, torch.randn(rows, *shape, dtype=torch.float64))
    assert other_outputs(before, small, *shape) < 1e-10
    fewer = sum(p.numel() for p in small.parameters()) < sum(
        p.numel() for p in model.parameters()
    )
    assert fewer or name not in SHRINK


@pytest.mark.parametrize("name", COMPACTED)
def test_compact_on_an_example_of_zeros(name):
    model, shape = COMPACTED[name]()
    small = dp.compact(model, torch.zeros(2, *shape, dtype=torch.float64))
    assert other_outputs(model, small, *shape) < 1e-10


# --- Widths in Python ----------------------------------------------------------


def test_half_of_an_odd_width_offers_nothing_that_cannot_be_cut():
    def forward(s, x):
        y = s.a(x).relu()
        n = y.shape[1] // 2
        return s.h(torch.cat([y[:, n:], y[:, :n].tanh()], dim=1))

    model = network(forward, a=Linear(8, 5), h=Linear(5, 3))
    groups = dp.find_groups(model, vectors())
    for group in groups:
        keep = {group.name: torch.arange(group.size) < 1}
        testing.check_removal(model, vectors(), keep=keep)


def branching(question):
    def forward(s, x):
        y = s.a(x).relu()
        z = s.b(y)
        if question(y, z):
            z = z[:, :12] + y
        return s.h(z.relu().mean((2, 3)))

    return network(forward, a=Conv(3, 12, 3), b=Conv(12, 16, 1), h=Linear(16, 2))


@pytest.mark.parametrize(
    "question",
    [
        lambda y, z: y.shape == z.shape,
        lambda y, z: y.size(1) >= z.size(1),
        lambda y, z: z.shape[1] < 14,  # noqa: ARG005
        lambda y, z: y.shape[1] in {4, 6},  # noqa: ARG005
    ],
)
def test_widths_that_are_compared_are_frozen_with_the_line(question):
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    groups = dp.find_groups(branching(question), x)
    assert not list(groups) or len(list(groups)) == 1
    reasons = [str(frozen.reason) for frozen in groups.frozen]
    assert any("compared" in r and "test_luck.py" in r for r in reasons) or any(
        "used as a number" in reason for reason in reasons
    )


def test_comparisons_that_no_cut_can_turn_freeze_nothing():
    def forward(s, x):
        y = s.a(x)
        assert y.shape[1] > 0
        assert y.shape[1] <= 12
        return s.h(y.relu())

    model = network(forward, a=Linear(8, 12), h=Linear(12, 3))
    assert [g.size for g in dp.find_groups(model, vectors())] == [12]


def test_groups_of_a_group_norm_are_still_cut():
    """Torch's own layers compare sizes, too; that says nothing."""
    model = nn.Sequential(
        Conv(3, 12, 3), nn.GroupNorm(4, 12), nn.ReLU(), Conv(12, 2, 1)
    )
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    assert list(dp.find_groups(model.double(), x))


def test_places_and_picks_are_frozen():
    def forward(s, x):
        y = s.a(x).relu()
        grid = s.o(y).permute(0, 2, 3, 1).tanh()
        return s.h(F.grid_sample(y, grid, align_corners=False).mean((2, 3)))

    model = network(forward, a=Conv(3, 12, 3), o=Conv(12, 2, 1), h=Linear(12, 2))
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    assert [g.name for g in dp.find_groups(model, x)] == ["a"]
    testing.check_removal(model, x, keep={"a": torch.arange(12) < 5})


def test_a_gather_that_reads_a_part_freezes_what_it_reads():
    def forward(s, x, picks):
        return s.h(s.a(x).relu().gather(1, picks).mean(1))

    model = network(forward, a=Linear(8, 12), h=Linear(7, 3))
    inputs = (torch.randn(2, 5, 8, dtype=torch.float64), torch.randint(5, (2, 4, 7)))
    assert not list(dp.find_groups(model, inputs))


# --- Sizes that only the example has -----------------------------------------


def sequences(length, rows=2):
    return torch.randn(rows, length, 8, dtype=torch.float64)


TABLES = {
    "slice": lambda s, x: s.table[: x.shape[1]],
    "second dimension": lambda s, x: s.table[None][:, : x.shape[1]],
    "narrow": lambda s, x: s.table.narrow(0, 0, x.shape[1]),
    "scaled": lambda s, x: (2 * s.table)[: x.shape[1]],
    "split": lambda s, x: s.table.split([x.shape[1], len(s.table) - x.shape[1]])[0],
}


def with_table(part):
    model = network(
        lambda s, x: s.h((s.a(x) + part(s, x)).relu()), a=Linear(8, 12), h=Linear(12, 3)
    )
    model.table = nn.Parameter(torch.randn(9, 12, dtype=torch.float64))
    return model


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("length", [1, 4])
def test_places_that_the_example_does_not_reach_stay(name, length):
    model = with_table(TABLES[name])
    groups = dp.find_groups(model, sequences(length))
    assert [group.size for group in groups] == [12]
    small = dp.remove(model, sequences(length), keep=half(groups))
    masked = surgery.mask(model, groups, half(groups))
    with torch.no_grad():
        model.table[:, :5] = model.a.weight[:5] = model.a.bias[:5] = 0
    compacted = dp.compact(model, sequences(length))
    assert compacted.table.shape == (9, 7)
    for x in map(sequences, (1, 4, 7)):
        torch.testing.assert_close(small(x), masked(x))
        torch.testing.assert_close(compacted(x), model(x))


def test_a_rank_that_only_weights_have_can_be_cut():
    model = network(
        lambda s, x: F.linear(x, s.up @ s.down),
        up=nn.Parameter(torch.randn(3, 6)),
        down=nn.Parameter(torch.randn(6, 8)),
    )
    testing.check_removal(model, vectors())
    assert [group.size for group in dp.find_groups(model, vectors())] == [6]


SIZES = {
    "sum over positions": lambda s, x: s.h(s.a(x).relu().sum(1)),
    "running sum": lambda s, x: s.h(s.a(x).relu().cumsum(1)),
    "count of rows": lambda s, x: s.h(s.a(x).relu() * len(x)),
    "count of positions": lambda s, x: s.h(s.a(x).relu() / x.shape[1]),
    "average at a border": lambda s, x: s.h(
        F.avg_pool1d(s.a(x).relu().mT, 3, 3, padding=1).mT
    ),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_constant_of_one_size_is_not_folded(name, length):
    model = network(SIZES[name], a=Linear(8, 12), h=Linear(12, 3))
    with torch.no_grad():
        model.a.weight[:5], model.a.bias[:5] = 0, 1
    small = dp.compact(model, sequences(length))
    for x in (sequences(1), sequences(4), sequences(7, rows=3)):
        torch.testing.assert_close(small(x), model(x))


def test_a_constant_of_all_sizes_is_folded():
    model = network(
        lambda s, x: s.h(s.a(x).relu().mean(1)), a=Linear(8, 12), h=Linear(12, 3)
    )
    with torch.no_grad():
        model.a.weight[:5], model.a.bias[:5] = 0, torch.rand(5)
    assert dp.compact(model, sequences(6)).h.in_features == 7


def test_a_certificate_looks_at_another_size():
    model = network(lambda s, x: s.h(s.a(x)), a=Linear(8, 12), h=Linear(12, 3))
    other = copy.deepcopy(model)
    other.h.register_forward_hook(lambda _, args, y: y * (1 + (args[0].shape[1] != 4)))
    with pytest.raises(RemovalError, match="something else"):
        surgery.certify(model, other, sequences(4))

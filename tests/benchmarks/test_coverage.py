import copy
import dataclasses

import pytest
import torch
from torch import nn

from benchmarks.coverage import record, table
from benchmarks.coverage.case import Case, select
from benchmarks.coverage.macs import MacCounter
from benchmarks.coverage.record import Record
from benchmarks.coverage.runner import Library, attempt, isolated
from benchmarks.coverage.scramble import scramble_
from benchmarks.coverage.survivors import (
    kept_indices,
    mask_,
)
from benchmarks.coverage.verdict import (
    Cut,
    RefusedError,
    Status,
    Verdict,
    judge_,
)

KEPT = [0, 2, 3]
INPUTS = (torch.randn(2, 3, 8, 8, dtype=torch.float64),)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Sigmoid(), nn.Conv2d(5, 2, 3)
    )


def drop_channels(model, inputs=INPUTS, ratio=0.4):
    """A correct removal, written out by hand."""
    del inputs, ratio
    first, norm, _, last = model
    for module, names in ((first, ("weight", "bias")), (norm, ("weight", "bias"))):
        for name in names:
            setattr(module, name, nn.Parameter(getattr(module, name)[KEPT]))
    norm.running_mean, norm.running_var = (
        norm.running_mean[KEPT],
        norm.running_var[KEPT],
    )
    last.weight = nn.Parameter(last.weight[:, KEPT])
    return Cut(model, 1)


def drop_misaligned(model, inputs, ratio):
    """Runs, but the consumer reads the channels in another order."""
    cut = drop_channels(model, inputs, ratio)
    cut.model[3].weight = nn.Parameter(cut.model[3].weight[:, [1, 0, 2]])
    return cut


def drop_too_little(model, inputs, ratio):
    """Leaves a consumer too wide for its input."""
    cut = drop_channels(model, inputs, ratio)
    cut.model[3].weight = nn.Parameter(torch.ones(2, 5, 3, 3, dtype=torch.float64))
    return cut


def decline(*_):
    raise RefusedError("no rule for `aten.roll`\nand more")


def spin(*_):
    while True:
        pass


def library(cut):
    return Library("hand", "1", cut)


def case(name="net"):
    return Case("own", name, network, lambda: INPUTS)


@pytest.mark.parametrize(
    ("cut", "status", "reason"),
    [
        (drop_channels, Status.EXACT, ""),
        (drop_misaligned, Status.WRONG, ""),
        (drop_too_little, Status.CRASHED, "RuntimeError: "),
        (decline, Status.REFUSED, "no rule for `aten.roll`"),
        (lambda model, *_: Cut(model, 0), Status.REFUSED, "nothing was removed"),
    ],
)
def test_every_ending_has_its_status(cut, status, reason):
    result = attempt(case(), library(cut))
    assert result.status is status
    assert result.reason.startswith(reason)


def test_verdict_of_a_correct_removal():
    original = scramble_(network())
    verdict = judge_(original, drop_channels(copy.deepcopy(original)).model, INPUTS)
    assert verdict.error < 1e-12
    assert verdict.effect > 1e-3
    assert (verdict.params, verdict.params_after) == (242, 146)
    # All but the two biases of the last layer are in tensors that shrank.
    assert verdict.params_share == pytest.approx(240 / 242)
    assert verdict.macs_share == 1
    assert verdict.macs_after == pytest.approx(0.6 * verdict.macs)


class Widest(nn.Module):
    """Computes something else when it trains, or where the input is another."""

    def __init__(self, when):
        super().__init__()
        self.body, self.when = network(), when

    def forward(self, x):
        wrong = self.training if self.when == "training" else x[0, 0, 0, 0] != EXAMPLE
        wrong = wrong and len(self.body[0].weight) == len(KEPT)
        return self.body(x) + float(wrong)


EXAMPLE = INPUTS[0][0, 0, 0, 0]


@pytest.mark.parametrize("when", ["training", "inputs"])
def test_train_mode_and_other_inputs_are_compared(when):
    original = scramble_(Widest(when))
    small = copy.deepcopy(original)
    drop_channels(small.body)
    verdict = judge_(original, small, INPUTS)
    assert verdict.status is Status.WRONG
    assert verdict.train_mode


def test_a_model_that_draws_is_not_compared_in_train_mode():
    original = scramble_(nn.Sequential(network(), Noise()))
    small = copy.deepcopy(original)
    drop_channels(small[0])
    verdict = judge_(original, small, INPUTS)
    assert verdict.status is Status.EXACT
    assert verdict.other_inputs
    assert not verdict.train_mode


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) if self.training else x


def test_endless_cut_is_a_timeout():
    assert isolated(case(), library(spin), timeout=1).status is Status.TIMEOUT


def test_isolation_does_not_change_the_result():
    inside, outside = (
        run(case(), library(drop_channels))
        for run in (attempt, lambda *args: isolated(*args, timeout=60))
    )
    assert inside.verdict == outside.verdict


@pytest.mark.parametrize(
    "index", [[[0, 2], [1, 3]], [[2, 0], [1]], [[1], [0, 1, 2, 3]]]
)
def test_survivors_are_recognised_in_any_order(index):
    whole = torch.rand(3, 4, dtype=torch.float64)
    rows, columns = (torch.tensor(i) for i in index)
    found = kept_indices(whole, whole[rows][:, columns])
    assert [i.tolist() for i in found] == index


@pytest.mark.parametrize(
    ("change", "message"), [(1.0, "replaced"), ([[0, 0], [1, 0]], "changed")]
)
def test_altered_values_are_not_survivors(change, message):
    whole = torch.rand(3, 2, dtype=torch.float64)
    altered = whole[:2] + torch.as_tensor(change)
    with pytest.raises(ArithmeticError, match=message):
        kept_indices(whole, altered)


def test_tied_parameters_are_masked_once():
    model = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)])
    model[1].weight = model[0].weight
    small = copy.deepcopy(model)
    small[0].weight = small[1].weight = nn.Parameter(model[0].weight[:2])
    assert mask_(model, small) == 9
    assert model[0].weight.ne(0).all(1).tolist() == [True, True, False]


def test_scrambled_model_has_no_special_values():
    model = scramble_(network())
    values = torch.cat([p.flatten() for p in model.parameters()])
    assert values.dtype is torch.float64
    assert values.unique().numel() == values.numel()
    assert not torch.isin(values, torch.tensor([0.0, 1.0])).any()
    assert model[1].running_var.unique().numel() == 5


def test_macs_of_a_grouped_convolution():
    with MacCounter() as counter, torch.no_grad():
        nn.Conv2d(4, 6, 3, groups=2)(torch.zeros(1, 4, 5, 5))
    assert counter.calls == [6 * 2 * 9 * 9]


def test_selection_by_name_or_zoo():
    cases = [case("resnet18"), case("vgg11")]
    assert [c.name for c in select(cases, "res*")] == ["resnet18"]
    assert len(select(cases, "own/*")) == 2


def test_the_newest_record_wins(tmp_path):
    path = tmp_path / "new" / "records.jsonl"
    old = attempt(case(), library(decline))
    new = attempt(case(), library(drop_channels))
    for one in (old, new):
        record.append(path, one)
    assert record.load(path) == [new]


@pytest.fixture
def records():
    verdict = Verdict(Status.EXACT, 0.0, 1.0, 10, 5, 0.5, 8, 4, 0.25)
    exact = Record("zoo", "a", "ours", "1", Status.EXACT, 0.1, "", 3, verdict)
    refused = Record("zoo", "b", "ours", "1", Status.REFUSED, 0.1, "a | b")
    peer = dataclasses.replace(exact, name="b", library="peer")
    return [exact, refused, peer]


def test_totals_count_every_status(records):
    assert table.totals(records)[0] == ("zoo", "ours", "1", "", "1", "", "", "", "2")


def test_models_only_another_library_prunes_are_named(records):
    assert table.behind(records, "ours") == ["zoo/b"]
    assert "Exact elsewhere, not here: zoo/b." in table.markdown(records, "ours")


def test_details_put_the_libraries_side_by_side(records):
    first, second = table.details(records)
    assert first == ("zoo/a", "exact", "3", "50%", "25%", "0.1", "", "", "", "", "")
    assert second[1] == "refused"
    assert second[6] == "exact"


def test_reasons_do_not_break_the_table(records):
    assert table.reasons(records) == [("zoo/b", "ours", Status.REFUSED, "a \\| b")]

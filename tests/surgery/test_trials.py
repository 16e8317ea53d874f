import math

import pytest
import torch
from torch import nn

from diffprune._surgery.compare import Comparison, Gap
from diffprune._surgery.trials import Finding, Trial, certificate, trials


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


X = torch.rand(2, 3) + 0.5


def run(function, *, training=False, x=X):
    return trials(Lambda(function), x, training=training, seeds=(1, 2))


def test_the_example_comes_first_and_our_own_inputs_differ():
    found = run(torch.exp)
    assert torch.equal(found.runs[0].inputs, X)
    assert len(found.runs) == 3
    assert not any(torch.equal(r.inputs, X) for r in found.runs[1:])
    assert not any(r.doubt for r in found.runs)


@pytest.mark.parametrize(
    ("function", "doubt"),
    [
        (lambda x: x * 0 + 1, "do not depend on the inputs"),
        (lambda x: x * torch.nan, "NaN"),
        (lambda x: x[:0], "no numbers"),
    ],
)
def test_runs_that_show_nothing_say_so(function, doubt):
    assert all(doubt in r.doubt for r in run(function).runs)


def test_inputs_out_of_domain_are_not_used():
    found = run(torch.log, x=torch.ones(2, 3))
    assert all(r.returned[0].isfinite().all() for r in found.runs)
    assert not found.doubts


def only(x):
    if not torch.equal(x, X):
        raise ValueError("nothing else")
    return x


def test_a_model_that_takes_the_example_alone_is_reported():
    found = run(only)
    assert len(found.runs) == 1
    assert "does not run" in found.doubts[0]


def finding(doubt, gap):
    trial = Trial("one", X, training=False, returned=[X], doubt=doubt)
    return Finding(trial, Comparison(Gap(gap, gap), torch.float64, 0.0))


def test_a_certificate_counts_only_what_could_have_failed():
    found = certificate([finding("", 1e-12), finding("all NaN", 0.0)], ["train"])
    assert found.max_relative == 1e-12
    assert found.compared == ("one",)
    assert found.doubts == ("one: all NaN", "train")
    assert "not shown: one: all NaN; train" in str(found)


def test_a_certificate_of_nothing_is_not_zero():
    found = certificate([finding("all NaN", 0.0)], [])
    assert found.is_vacuous
    assert math.isnan(found.max_absolute)
    assert str(found) == "nothing was shown: one: all NaN"

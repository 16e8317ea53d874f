import pytest
import torch
from torch.nn import functional as F

LOSSES = {
    "squared": F.mse_loss,
    "absolute": F.l1_loss,
    "smooth": F.smooth_l1_loss,
    "robust": F.huber_loss,
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_distances_that_are_summed_ignore_what_is_zero_in_both(between, sizes, loss):
    def body(m, h):
        return m.last(h), loss(h, h.sin(), reduction="sum")

    assert sizes(between(body)) == {"first": 8}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_mean_of_distances_counts_all_units(between, reason, loss):
    model = between(lambda m, h: (m.last(h), loss(h, h.sin())))
    assert "a statistic is taken over it" in reason(model)


def test_a_loss_for_each_unit_passes_them_on(between, sizes):
    model = between(lambda m, h: m.last(F.mse_loss(h, h.sin(), reduction="none")))
    assert sizes(model) == {"first": 8}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_classes_are_told_by_number(between, sizes, reduction):
    def body(m, h):
        classes = torch.zeros(len(h), dtype=torch.long)
        weight = torch.ones(3, dtype=h.dtype)
        options = {"weight": weight, "reduction": reduction}
        return F.cross_entropy(m.last(h), classes, **options), F.nll_loss(h, classes)

    assert sizes(between(body)) == {}


def test_a_loss_nobody_reads_freezes_nothing(between, sizes):
    def body(m, h):
        F.mse_loss(h, h.sin())
        F.binary_cross_entropy_with_logits(h, h.sigmoid())
        return m.last(h)

    assert sizes(between(body)) == {"first": 8}

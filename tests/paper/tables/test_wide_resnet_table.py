from dataclasses import replace

import pytest
import torch
from torch import nn

from paper.models.wide_resnet import WideResNet
from paper.tables.wide_resnet_table import (
    NETWORKS,
    PRINTED,
    WHOLE,
    WRN_10_1,
    wide_macs,
    wide_resnet_table,
)  # fmt: skip
from paper.wide_resnet_recipes import small_wrn_high, wide_wrn_high_budget


@pytest.mark.parametrize(
    ("kind", "macs"), [("low", 3.70e9), ("high", 2.18e9)], ids=["low", "high"]
)
def test_the_printed_widths_cost_what_they_were_found_to_cost(kind, macs):
    assert wide_macs(PRINTED[kind]) == pytest.approx(macs, rel=2e-3)


@pytest.mark.parametrize("widths", PRINTED.values(), ids=PRINTED)
def test_the_printed_widths_fit_the_network(widths):
    for group, whole in zip(widths, WHOLE, strict=True):
        for block, most in zip(group, whole, strict=True):
            assert all(0 < w <= m for w, m in zip(block, most, strict=True))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_small_networks_cost_what_their_layers_do(network):
    model = WideResNet(10, network.widen)
    macs = []

    def count(layer, _, output):
        pixels = output[0, 0].numel() if output.ndim > 2 else 1
        macs.append(layer.weight.numel() * pixels)

    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    model(torch.rand(2, 3, network.side, network.side))
    assert network.macs == sum(macs)


def test_the_table_has_the_paper_above_and_ours_below(done, lines_of):
    (epoch,) = done.epochs
    half = replace(epoch, number=2, macs=WRN_10_1.macs // 2, test_error=12.5)
    high = replace(done, recipe=small_wrn_high(), epochs=(epoch, half), outcome=None)
    paper, ours = [
        line for line in lines_of(wide_resnet_table([high])) if "high" in line
    ]
    for text in ("12.50", "50.0%", f"2/{high.recipe.epochs}"):
        assert text in ours
    assert all(text in paper for text in ("4.5", "2.18G", "41.6%"))


def test_a_network_without_runs_has_no_section(done, lines_of):
    high = [replace(done, recipe=wide_wrn_high_budget(seed)) for seed in (0, 3)]
    lines = lines_of(wide_resnet_table(high))
    assert not any("WRN-10-1" in line for line in lines)
    shown = [line for line in lines if "high, budget" in line or "seed 3" in line]
    assert ["seed" in line for line in shown] == [False, True]


def test_a_seed_that_was_run_twice_is_told_apart(done, lines_of):
    runs = [replace(done, recipe=wide_wrn_high_budget(seed)) for seed in (0, 0, 1)]
    shown = [line for line in lines_of(wide_resnet_table(runs)) if "seed" in line]
    assert ["again" in line for line in shown] == [True, False]


def test_several_seeds_have_a_mean(done, lines_of):
    (epoch,) = done.epochs
    runs = [
        replace(done, recipe=wide_wrn_high_budget(seed), epochs=(with_error,))
        for seed, wrong in enumerate((10.0, 13.0))
        for with_error in [replace(epoch, test_error=wrong)]
    ]
    (mean,) = [line for line in lines_of(wide_resnet_table(runs)) if "mean" in line]
    assert "11.50" in mean
    assert not any("mean" in line for line in lines_of(wide_resnet_table(runs[:1])))

"""What makes group discovery right, on every network of the zoo."""

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from diffprune import testing
from zoo import ZOO, analysed, call

# The flop counter skips bilinear layers, we skip recurrent layers with projections.
COUNTED = sorted(ZOO.keys() - {"bilinear", "projected_lstm"})


@pytest.mark.parametrize("name", ZOO)
def test_permuting_units_leaves_the_outputs_unchanged(name):
    model, inputs, groups = analysed(name)
    testing.check_groups(model, inputs, groups=groups)


def test_units_that_norms_couple_can_be_permuted_too():
    coupled = [n for n in ZOO if analysed(n).groups.solution.facts.coupled]
    found = 0
    for name in coupled:
        model, inputs, _ = analysed(name)
        groups = testing.check_groups(model, inputs, norms="narrow")
        found += sum(not group.is_exact for group in groups)
    assert found >= 10


@pytest.mark.parametrize("name", ZOO)
def test_what_the_zoo_expects_is_found(name):
    groups, expect = analysed(name).groups, ZOO[name].expect
    assert len(groups) >= expect.min_prunable_groups
    assert not (expect.frozen and groups.groups)


@pytest.mark.parametrize("name", COUNTED)
def test_multiply_adds_are_half_the_flops(name):
    model, inputs, groups = analysed(name)
    # Other kernels of attention are not counted.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call(model, inputs)
    assert groups.macs() == counter.get_total_flops() / 2


@pytest.mark.parametrize("name", ZOO)
def test_parameters_are_counted(name):
    model, _, groups = analysed(name)
    assert groups.parameters() == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", ZOO)
def test_costs_per_unit_are_what_one_unit_less_saves(name):
    groups = analysed(name).groups
    for group in groups:
        fewer = {group.atom: group.size - 1}
        assert groups.parameters() - groups.parameters(fewer) == group.parameters
        assert groups.macs() - groups.macs(fewer) == group.macs

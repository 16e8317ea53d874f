import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.resnets import resnet18, resnet50


@pytest.mark.parametrize(
    ("make", "parameters", "multiply_adds"),
    # The counts of the published networks: 1.8 and 4.1 billion multiply-adds.
    [(resnet18, 11_689_512, 1_814_073_344), (resnet50, 25_557_032, 4_089_184_256)],
)
def test_costs_are_those_of_the_published_networks(make, parameters, multiply_adds):
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = make()
        scores = model(torch.empty(1, 3, 224, 224))
    assert scores.shape == (1, 1000)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert counter.get_total_flops() // 2 == multiply_adds


def test_every_stage_is_twice_as_wide_and_half_as_large():
    model = resnet18(num_classes=5, width=3)
    shapes = []
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        stage.register_forward_hook(lambda *args: shapes.append(args[-1].shape[1:3]))
    model(torch.rand(1, 3, 64, 64))
    assert shapes == [(3, 16), (6, 8), (12, 4), (24, 2)]

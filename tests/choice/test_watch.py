import torch
from torch import nn
from torch.nn import functional as F

from diffprune._choice.watch import Watch


def names(run):
    found = []

    def note(call):
        found.append(call.name)
        return call.run()

    with Watch(note):
        result = run()
    return found, result


def test_attention_is_entered_and_computes_the_same():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.rand(2, 3, 8)
    found, (actual, _) = names(lambda: layer(x, x, x))
    assert found.count("linear") == 2
    torch.testing.assert_close(actual, layer(x, x, x)[0])


def test_parameters_come_as_themselves():
    layer, seen = nn.Linear(3, 2), []

    def note(call):
        seen.extend(call.tensors)
        return call.run()

    with Watch(note):
        layer(torch.rand(1, 3))
    assert any(tensor is layer.weight for tensor in seen)


def test_a_tensor_can_be_replaced():
    x, weight = torch.rand(2, 3), torch.rand(4, 3)

    def twice(call):
        return call.run_with(x, 2 * x) if call.name == "linear" else call.run()

    with Watch(twice):
        actual = F.linear(x, weight=weight)
    torch.testing.assert_close(actual, 2 * x @ weight.T)


def test_arguments_by_place_and_by_name():
    seen = []

    def note(call):
        seen.append((call.argument(1, "weight"), call.argument(2, "bias", "none")))
        return call.run()

    x, weight = torch.rand(2, 3), torch.rand(4, 3)
    with Watch(note):
        F.linear(x, weight)
        F.linear(x, weight=weight)
    assert all(given is weight and bias == "none" for given, bias in seen)


def test_pooling_and_norms_run():
    model = nn.Sequential(nn.MaxPool2d(2), nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1))
    x = torch.rand(2, 3, 8, 8)
    expected = model.eval()(x)
    found, actual = names(lambda: model(x))
    assert "batch_norm" in found
    torch.testing.assert_close(actual, expected)

"""Noise at outputs against noise on weights, and what is left of a network."""

import copy

import pytest
import torch
from torch import distributions, nn

import diffprune as dp
from paper.methods import log_uniform, variational_layers
from paper.methods.bayesian_compression import NormalJeffreys
from paper.methods.variational_layers import (
    NormalWeights,
    SparseWeights,
    divergence,
    noisy,
    normal_divergence,
    plain_,
    replace_layers_,
)
from paper.models.lenet5 import LeNet5

LAYERS = [nn.Linear(6, 3), nn.Conv2d(2, 3, 3, stride=2, padding=1)]


def inputs(layer):
    return torch.rand(1, 6) if isinstance(layer, nn.Linear) else torch.rand(1, 2, 5, 5)


@pytest.mark.parametrize("layer", LAYERS)
def test_noise_at_outputs_is_that_of_noisy_weights(layer):
    torch.manual_seed(0)
    noisy = NormalWeights(copy.deepcopy(layer))
    noisy.weight_log_var.data.fill_(-2.0)
    noisy.bias_log_var.data.fill_(-2.0)
    x = inputs(layer)
    drawn = torch.stack([noisy(x) for _ in range(4_000)])
    spread = torch.exp(torch.tensor(-1.0))
    weights = [
        noisy.op(
            x,
            noisy.weight + spread * torch.randn_like(noisy.weight),
            noisy.bias + spread * torch.randn_like(noisy.bias),
        )
        for _ in range(4_000)
    ]
    expected = torch.stack(weights)
    torch.testing.assert_close(drawn.mean(0), expected.mean(0), atol=0.06, rtol=0)
    torch.testing.assert_close(drawn.std(0), expected.std(0), atol=0.05, rtol=0.05)
    assert torch.equal(noisy.eval()(x), layer(x))


def test_a_draw_and_its_slopes_are_those_of_its_formula():
    torch.manual_seed(0)
    mean, var = torch.randn(2, 7, 5, dtype=torch.float64).unbind()
    mean, var = mean.requires_grad_(), var.exp().requires_grad_()

    def seeded(mean, var):
        torch.manual_seed(1)
        return noisy(mean, var)

    torch.manual_seed(1)
    noise = torch.randn_like(mean)
    torch.testing.assert_close(seeded(mean, var), mean + (var + 1e-8).sqrt() * noise)
    assert torch.autograd.gradcheck(seeded, (mean, var))


def test_while_it_is_exported_a_draw_has_the_same_formula(monkeypatch):
    mean, var = torch.randn(2, 7, 5).unbind()
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    torch.manual_seed(1)
    drawn = noisy(mean, var.exp())
    torch.manual_seed(1)
    expected = mean + (var.exp() + 1e-8).sqrt() * torch.randn_like(mean)
    torch.testing.assert_close(drawn, expected)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("clip", [True, False])
def test_sparse_layers_have_the_mean_and_variance_of_their_weights(
    layer, clip, monkeypatch
):
    """With log-alphas below -8, between, above the threshold of 3, and above 8."""
    seen = []
    monkeypatch.setattr(
        variational_layers, "noisy", lambda *given: seen.append(given) or given[0]
    )
    sparse, x = SparseWeights(copy.deepcopy(layer), clip=clip), inputs(layer)
    log_alpha = torch.linspace(-11, 11, layer.weight.numel()).view_as(layer.weight)
    squared = layer.weight.detach().square()
    sparse.log_sigma2.data = log_alpha + torch.log(squared + 1e-8)
    bounded = log_alpha.clamp(-8, 8)
    torch.testing.assert_close(sparse.log_alpha(), bounded, atol=1e-4, rtol=1e-4)
    used = torch.where(log_alpha < 3, layer.weight, 0.0)
    sparse(x)
    ((mean, var),) = seen
    expected = sparse.op(x, used if clip else layer.weight, layer.bias)
    torch.testing.assert_close(mean, expected)
    expected = sparse.op(x**2, bounded.exp() * squared, None)
    torch.testing.assert_close(var, expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(sparse.eval()(x), sparse.op(x, used, layer.bias))
    cost = log_uniform.divergence(bounded).sum()
    torch.testing.assert_close(sparse.divergence(), cost, rtol=1e-4, atol=1e-4)


def test_variances_start_as_published():
    torch.manual_seed(0)
    layer = nn.Linear(100, 100)
    assert SparseWeights(layer).log_sigma2.unique().tolist() == [-10.0]
    normal = NormalWeights(layer)
    for log_var in (normal.weight_log_var, normal.bias_log_var):
        assert log_var.mean().item() == pytest.approx(-9, abs=0.01)
        assert log_var.std().item() == pytest.approx(0.01, rel=0.2)


def test_the_prior_covers_weights_and_biases():
    layer = NormalWeights(nn.Linear(4, 3))
    layer.weight_log_var.data.fill_(-1.0)
    layer.bias_log_var.data.fill_(-2.0)
    standard = distributions.Normal(0.0, 1.0)
    pairs = (layer.weight, layer.weight_log_var), (layer.bias, layer.bias_log_var)
    expected = sum(
        distributions.kl_divergence(
            distributions.Normal(mean, (log_var / 2).exp()), standard
        ).sum()
        for mean, log_var in pairs
    )
    torch.testing.assert_close(layer.divergence(), expected)


@pytest.mark.parametrize("make", [NormalWeights, SparseWeights])
def test_layers_keep_the_order_of_memory(make):
    layer = make(nn.Conv2d(1, 3, 3)).to(memory_format=torch.channels_last)
    outputs = []
    layer.op = lambda *given, op=layer.op: outputs.append(op(*given)) or outputs[-1]
    layer(torch.rand(2, 1, 5, 5))
    layer.eval()(torch.rand(2, 1, 5, 5))
    assert len(outputs) == 3
    assert {y.stride() for y in outputs} == {(27, 1, 9, 3)}


def test_the_divergence_is_that_of_torch():
    mean, log_var = torch.randn(5), torch.randn(5)
    normal = distributions.Normal(mean, (log_var / 2).exp())
    standard = distributions.Normal(torch.zeros(5), torch.ones(5))
    expected = distributions.kl_divergence(normal, standard).sum()
    torch.testing.assert_close(normal_divergence(mean, log_var), expected)


@pytest.mark.parametrize("layer", LAYERS)
def test_noisy_weights_are_zero_in_use(layer):
    layer = copy.deepcopy(layer)
    layer.weight.data = layer.weight.data.sign() * (0.1 + layer.weight.data.abs())
    sparse = SparseWeights(layer).eval()
    x = inputs(layer)
    torch.testing.assert_close(sparse(x), layer(x))
    sparse.log_sigma2.data[0] = 9.0
    assert (sparse.sparse()[0] == 0).all()
    assert (sparse.sparse()[1] != 0).all()


def test_a_layer_without_biases_is_refused():
    with pytest.raises(dp.errors.ArgumentError, match="no bias"):
        NormalWeights(nn.Conv2d(1, 2, 3, bias=False))


def test_a_sparse_network_becomes_plain_and_small():
    torch.manual_seed(0)
    model = replace_layers_(LeNet5(), SparseWeights)
    images = torch.rand(4, 1, 28, 28)
    with torch.no_grad():
        model.conv1.log_sigma2[4:] = 9.0
        model.conv1.bias[4:] = -1.0
    assert divergence(model) > 0
    plain = plain_(model, LeNet5())
    expected = model.eval()(images)
    torch.testing.assert_close(plain.eval()(images), expected)
    small = dp.compact(plain, images)
    assert small.conv1.out_channels == 4
    torch.testing.assert_close(small(images), expected, atol=1e-5, rtol=1e-4)


def test_a_network_of_noisy_weights_is_cut_with_its_gates():
    torch.manual_seed(0)
    model = replace_layers_(LeNet5(NormalJeffreys), NormalWeights)
    images = torch.rand(4, 1, 28, 28)
    pruner = dp.Pruner(model, images, strength=1e-5)
    with torch.no_grad():
        model.gate_conv2.mean[10:] = 1e-3
        model.gate_conv2.log_var[10:] = 0.0
    expected = copy.deepcopy(model).eval()(images)
    small = pruner.finalize().eval()
    torch.testing.assert_close(small(images), expected, atol=1e-5, rtol=1e-4)
    assert small.conv2.weight.shape[0] == 10
    assert small.conv2.weight_log_var.shape[0] == 10
    assert small.fc1.weight_log_var.shape[1] == 160

"""The judges judged: all networks of the zoo and random ones run and repeat."""

from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from generator import random_network
from zoo import ZOO, analysed, call, replayed

RANDOM = {f"seed{seed}": partial(random_network, seed) for seed in range(50)}
NETWORKS = {**ZOO, **RANDOM}

# Names as `torch.overrides` sees them; a layer shows as the function it calls.
PROMISED = {
    "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "batch_norm instance_norm group_norm layer_norm rms_norm prelu embedding",
    "add mul sub div cat stack hstack split chunk narrow __getitem__ unbind",
    "flatten view reshape unflatten permute transpose squeeze unsqueeze expand",
    "max_pool2d avg_pool2d lp_pool2d adaptive_avg_pool2d adaptive_max_pool2d",
    "max_pool1d avg_pool1d adaptive_max_pool1d adaptive_max_pool3d max_unpool2d",
    "interpolate pad pixel_shuffle pixel_unshuffle channel_shuffle unfold fold",
    "matmul bmm baddbmm addmm einsum scaled_dot_product_attention",
    "multi_head_attention_forward softmax log_softmax dropout dropout2d glu lstm gru",
    "repeat repeat_interleave tile index_select masked_fill where grid_sample",
    "argmax topk sort cumsum roll fft_rfft fft_irfft mean std amax index_add scatter",
    "scatter_add_ scatter_reduce index_copy index_put slice_scatter select_scatter",
}


@pytest.fixture(params=NETWORKS)
def build(request):
    return NETWORKS[request.param]


def tensors(outputs):
    return pytree.tree_leaves(outputs)


def export(model, inputs):
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, None)
    args = args if isinstance(args, tuple) else (args,)
    return torch.export.export(model, args, kwargs, strict=False)


class CalledNames(TorchFunctionMode):
    """Collects the names of all torch functions that are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.add(func.__name__)
        return func(*args, **(kwargs or {}))


def test_the_zoo_calls_every_operation_that_is_promised():
    with CalledNames() as called:
        for entry in ZOO.values():
            call(*entry())
    assert set(" ".join(PROMISED).split()) - called.names == set()


def test_outputs_are_moderate_and_not_constant(build):
    outputs = tensors(call(*build()))
    assert all(output.dtype == torch.float64 for output in outputs)
    assert all(output.abs().max() < 30 for output in outputs)
    assert all(output.std() > 1e-3 for output in outputs if output.numel() > 1)


def test_no_tensor_is_left_at_a_neutral_zero_or_one(build):
    model, _ = build()
    statistics = [b for name, b in model.named_buffers() if "running" in name]
    values = [*model.parameters(), *statistics]
    assert all(((v == 0) | (v == 1)).double().mean() < 0.5 for v in values)


def test_building_twice_gives_the_same_network(build):
    torch.testing.assert_close(call(*build()), call(*build()), rtol=0, atol=0)


def test_building_leaves_the_global_seed_alone(build):
    before = torch.get_rng_state()
    build()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ZOO)
def test_what_was_traced_gives_the_same_outputs(name):
    """Of random networks `laws/test_random_networks.py` says the same."""
    model, inputs, groups = analysed(name)
    found = replayed(groups, model, inputs)
    if found is None:
        found = tensors(call(export(model, inputs).module(), inputs))
    torch.testing.assert_close(found, tensors(call(model, inputs)))


def test_gradients_are_finite_and_some_reach_the_parameters(build):
    model, inputs = build()
    sum(output.square().sum() for output in tensors(call(model, inputs))).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients)

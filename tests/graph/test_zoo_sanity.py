"""The judges judged: every network of the zoo runs, repeats, exports, trains."""

import pytest
import torch
from torch.utils import _pytree as pytree

from zoo import ZOO, call


@pytest.fixture(params=ZOO)
def entry(request):
    return ZOO[request.param]


def tensors(outputs):
    return pytree.tree_leaves(outputs)


# Recurrent layers keep a second list of their weights, which export replaces and
# restores; it warns about that.
ignore_flat_weights = pytest.mark.filterwarnings(
    "ignore:The tensor attribute.*_flat_weights"
)


def export(model, inputs):
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, None)
    return torch.export.export(model, args, kwargs, strict=False)


def test_outputs_are_moderate_and_not_constant(entry):
    outputs = tensors(call(*entry()))
    assert all(output.dtype == torch.float64 for output in outputs)
    assert all(output.abs().max() < 30 for output in outputs)
    assert all(output.std() > 1e-3 for output in outputs if output.numel() > 1)


def test_building_twice_gives_the_same_network(entry):
    torch.testing.assert_close(call(*entry()), call(*entry()), rtol=0, atol=0)


@ignore_flat_weights
def test_export_gives_the_same_outputs(entry):
    model, inputs = entry()
    exported = export(model, inputs).module()
    torch.testing.assert_close(call(exported, inputs), call(model, inputs))


def test_gradients_are_finite_and_some_reach_the_parameters(entry):
    model, inputs = entry()
    sum(output.square().sum() for output in tensors(call(model, inputs))).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients)

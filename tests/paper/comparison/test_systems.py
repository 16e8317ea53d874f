"""Every system trains, and what it is cut to computes what it did before."""

from dataclasses import replace

import pytest
import torch

from diffprune import lab
from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Split
from paper.comparison import run
from paper.comparison.systems import METHODS
from paper.models.lenet5 import DENSE, PLACES, Widths
from paper.published import lenet5_on_mnist

QUICK = ("l0", "sparse-vd")
GATED = [name for name, method in METHODS.items() if method.training is not None]


def hurried(name):
    """A recipe that closes units within some dozen steps, whatever that costs."""
    asked = METHODS[name].asked(0, 1)
    recipe = replace(asked, batch_size=5, decay="constant")
    if name.startswith("gl-"):
        return replace(recipe, lr=1e-6 if name == "gl-literal" else recipe.lr)
    if name == "bc-ghs":  # pushed harder, all units go alike, and none is told apart
        return replace(recipe, gate_lr=0.1, strength=100 * recipe.strength)
    factor = 1e5 if name.startswith("gd-") else 1e3
    strength = recipe.strength
    many = (
        {place: factor * value for place, value in strength.items()}
        if isinstance(strength, dict)
        else factor * strength
    )
    return replace(recipe, gate_lr=0.3, strength=many)


def started(name):
    """The network of a system; of group lasso, with norms that soon are zero."""
    model = METHODS[name].model(10.0)
    if name.startswith("gl-"):
        model.fc1.weight.data *= 1e-3
    return model


def few_digits():
    data = load_digits()
    few = data.train.take(torch.arange(600))
    return Split(few, None, data.test)


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in GATED],
)
def test_what_is_cut_computes_what_it_did(name, tmp_path):
    method, recipe, data = METHODS[name], hurried(name), few_digits()
    seen = {}

    def task(recipe):
        made = run.make_task(method, started(name), data, recipe)

        def pruner(model, examples):
            seen["training"] = made.pruner(model, examples)
            return seen["training"]

        return replace(made, pruner=pruner)

    @torch.no_grad()
    def before(_):
        model = seen["training"].model.eval()
        seen["outputs"] = model(data.test.images)
        model.train()

    small = lab.train(task, recipe, out=tmp_path / name, on_epoch=before).eval()
    with torch.no_grad():
        outputs = small(data.test.images)
    torch.testing.assert_close(outputs, seen["outputs"], atol=1e-4, rtol=1e-3)
    done = lab.read_run(tmp_path / name)
    left = Widths(*done.outcome.effective.values())
    assert tuple(done.outcome.effective) == PLACES
    assert left.weights < DENSE.weights
    assert (done.outcome.parameters, done.outcome.macs) == (left.parameters, left.macs)
    assert not [
        module for module in small.modules() if "Weights" in type(module).__name__
    ]


def test_every_published_row_is_run_and_every_method_has_its_own():
    rows = {row.method for row in lenet5_on_mnist() if "Table 1" in row.source}
    assert rows == {m.published for m in METHODS.values() if m.published}
    assert len({m.label for m in METHODS.values()}) == len(METHODS)


def test_penalties_of_l0_are_those_of_its_paper():
    uniform = METHODS["l0"].recipe.strength
    assert list(uniform.values()) == pytest.approx(
        [4.2e-5, 8.3e-4, 8.3e-4, 1.7e-5], rel=0.03
    )
    separate = METHODS["l0-sep"].recipe.strength
    assert list(separate.values()) == pytest.approx(
        [4.2e-3, 4.2e-3, 8.3e-4, 1.7e-3], rel=0.03
    )

"""Every system trains, and what it is cut to computes what it did before."""

from dataclasses import replace

import pytest
import torch

from diffprune import lab
from diffprune.gates import named_gates
from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Split
from paper.comparison import run
from paper.comparison.method import Moment
from paper.comparison.systems import METHODS
from paper.methods.group_lasso import LENET5, norms
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


@pytest.mark.parametrize(
    ("name", "epochs", "pressures"),
    [
        ("sparse-vd", (4, 5, 12.5, 20, 199), (0, 0, 0.5, 1, 1)),
        ("bc-gnj", (0, 50, 100, 200), (0, 0.5, 1, 1)),
        ("bc-ghs", (0, 50, 100, 200), (0, 0.5, 1, 1)),
        ("sbp", (0, 200), (1, 1)),
        ("l0", (0, 200), (1, 1)),
        ("gl-literal", (0, 133, 134, 200), (1, 1, 0, 0)),
    ],
)
def test_penalties_are_phased_in_and_out_as_published(name, epochs, pressures):
    found = [METHODS[name].pressure(epoch / 200) for epoch in epochs]
    assert found == pytest.approx(pressures)


def test_optimizers_are_those_of_the_publications():
    def made(name):
        groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.1}]
        return METHODS[name].optimizer(groups)

    assert made("sbp").defaults["betas"] == (0.95, 0.999)
    assert made("l0").defaults["betas"] == (0.9, 0.999)
    for name in ("gl-literal", "gl-proximal"):
        assert isinstance(made(name), torch.optim.SGD)
        assert made(name).defaults["momentum"] == 0.9


def test_constrained_densities_and_prices():
    gates = named_gates(METHODS["constrained-l0"].model(7.0)).values()
    densities = {gate.size: gate.density for gate in gates}
    assert densities == {20: 0.5, 50: 0.3, 800: 0.7, 500: 0.1}
    assert [gate.dual_lr for gate in gates] == pytest.approx([7e-4] * 4)


def test_magnitude_pruning_closes_every_hundred_steps_down_to_the_papers_row():
    method = METHODS["magnitude"]
    model = method.model(1.0)

    def left():
        return [int(gate.is_open().sum()) for gate in named_gates(model).values()]

    method.after_step(model, Moment(150, 0.9, 1e-3))
    assert left() == [20, 50, 800, 500]
    method.after_step(model, Moment(200, 0.9, 1e-3))
    assert left() == [10, 20, 71, 35]


@pytest.mark.parametrize("name", ["gl-literal", "gl-proximal"])
def test_group_lasso_holds_zeros_for_the_last_third(name):
    method = METHODS[name]
    model = method.model(1.0)
    model.conv2.weight.data[3:] = 0.0
    model.conv1.weight.data.zero_()
    method.after_step(model, Moment(1, 0.66, 0.0))
    assert model.gate_conv2.is_open().all()
    method.after_step(model, Moment(2, 0.67, 0.0))
    assert model.gate_conv2.is_open().tolist() == [True] * 3 + [False] * 47
    assert int(model.gate_conv1.is_open().sum()) == 1  # or nothing would be left
    before = model.fc1.weight.clone()
    method.after_step(model, Moment(3, 0.68, 0.1))
    assert (model.fc1.weight != before).sum() <= (before.abs() < 1e-4).sum()


def test_the_proximal_step_is_as_long_as_momentum_makes_it():
    model = METHODS["gl-proximal"].model(1.0)
    before = norms(model, LENET5["conv2"]).detach()
    METHODS["gl-proximal"].after_step(model, Moment(1, 0.1, 0.02))
    expected = before - 0.02 * 0.005 / (1 - 0.9)
    torch.testing.assert_close(norms(model, LENET5["conv2"]).detach(), expected)


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("l0", "l0-sep", "mdr-expuni", "magnitude"), {}),
        (("sparse-vd",), {"decay": "linear"}),
        (("sbp",), {"batch_size": 128, "decay": "linear", "decay_after": (100,)}),
        (("bc-gnj", "bc-ghs"), {"batch_size": 128}),
        (("constrained-l0",), {"batch_size": 128, "lr": 7e-4}),
        (("diffprune", "diffprune-reg"), {"lr": 5e-4}),
        (
            ("gd-straight", "gd-relaxed"),
            {
                "gate_lr": 1e-2, "weight_decay": 1e-4,
                "decay": "steps", "decay_after": (100, 140), "decay_factor": 0.1,
            },
        ),
        (
            ("gl-literal", "gl-proximal"),
            {
                "epochs": 11, "batch_size": 64, "lr": 0.01,
                "decay": "steps", "decay_after": (7, 9), "decay_factor": 0.1,
            },
        ),
    ],
    ids=str,
)  # fmt: skip
def test_recipes_are_those_of_the_publications(names, numbers):
    """Adam at 0.001 for 200 epochs, in batches of 100, unless they say otherwise."""
    usual = {"epochs": 200, "batch_size": 100, "lr": 1e-3, "gate_lr": None}
    expected = usual | {"weight_decay": 0.0, "decay": "constant"} | numbers
    for name in names:
        recipe = METHODS[name].recipe
        assert {field: getattr(recipe, field) for field in expected} == expected


@pytest.mark.parametrize(
    "name", ["sparse-vd", "sbp", "bc-gnj", "bc-ghs", "gd-relaxed", "gd-straight"]
)
def test_divergences_are_divided_by_the_number_of_images(name):
    assert METHODS[name].recipe.strength == 1 / 60_000


def test_probabilities_of_dropout_gates_stay_in_their_range_after_a_step():
    method = METHODS["gd-straight"]
    model = method.model(1.0)
    model.gate_fc1.logits.data[:2] = torch.tensor([-0.5, 1.5])
    method.after_step(model, Moment(1, 0.0, 1e-3))
    assert model.gate_fc1.logits[:2].tolist() == pytest.approx([1e-6, 1 - 1e-6])

"""Training commutes with removal: k steps, a cut, k steps are 2k steps for survivors.

Without noise, in double precision, to 1e-9: every optimizer that treats elements one by
one, over a dozen models (`MODELS`), and Adam over the whole zoo. Optimizers that couple
elements (Adafactor, Muon) commute where that is defined, or at least follow.
"""

import copy
from functools import partial

import pytest
import torch
from torch import nn, optim
from torch.utils import _pytree as pytree

import diffprune as dp
from diffprune.errors import ArgumentError
from diffprune.testing import check_training_commutes
from diffprune.testing.outcomes import assert_close, returned
from diffprune.testing.training_laws import (
    accepted,
    close_some_,
    manual_pruner,
    train_,
)
from zoo import ZOO, call


class Lion(optim.Optimizer):
    """The sign of a moving average: a custom optimizer with state like a parameter."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                direction = torch.lerp(p.grad, average, 0.9).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(direction, alpha=group["lr"])
                average.lerp_(p.grad, 0.01)


class Orthogonal(Lion):
    """Momentum with its singular values replaced by ones, as Muon does to matrices."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                average.mul_(0.9).add_(p.grad)
                update = orthogonal(average) if p.ndim == 2 else average
                p.sub_(update, alpha=group["lr"])


def orthogonal(matrix):
    """Singular values become one; those that are zero stay."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return (left * (values > 1e-9 * values.max())) @ right


OPTIMIZERS = {
    "sgd": partial(optim.SGD, momentum=0.9, nesterov=True),
    "sgd_foreach": partial(optim.SGD, momentum=0.9, dampening=0.1, foreach=True),
    "sgd_fused": partial(optim.SGD, momentum=0.9, fused=True),
    "adam": optim.Adam,
    "adam_amsgrad": partial(optim.Adam, amsgrad=True),
    "adam_foreach": partial(optim.Adam, foreach=True),
    "adam_fused": partial(optim.Adam, fused=True),
    "adamw": optim.AdamW,
    "adamw_fused": partial(optim.AdamW, fused=True),
    "rmsprop": partial(optim.RMSprop, momentum=0.9, centered=True),
    "adagrad": optim.Adagrad,
    "adagrad_fused": partial(optim.Adagrad, fused=True),
    "adadelta": optim.Adadelta,
    "adamax": optim.Adamax,
    "nadam": optim.NAdam,
    "radam": optim.RAdam,
    "rprop": optim.Rprop,
    "asgd": optim.ASGD,
    "lion": Lion,
}
FEW = ("lenet", "pre_activation", "lstm", "tied_autoencoder")
MODELS = (*FEW, "resnet", "depthwise", "grouped", "unet", "weight_norm", "glu",
          "weight_norm_hooks", "separate_qkv", "deep_bidirectional")  # fmt: skip
# All that these networks hold is an input, an output or frozen.
NOTHING_TO_REMOVE = {
    "argmax_over_channels", "centre", "channel_mean", "cumsum_over_channels",
    "fft_over_channels", "fused_qkv", "group_norm_one_group", "hard_coded_scale",
    "hard_coded_split", "hard_coded_view", "layer_norm", "layer_norm_2d",
    "local_response_norm", "log_softmax_over_channels", "projected_lstm",
    "rms_norm", "rms_norm_by_hand", "roll_over_channels", "softmax_over_channels",
    "sort_over_channels", "standardise", "topk_over_channels", "unpool",
}  # fmt: skip


def make(name, optimizer):
    """A pruner that never removes by itself, its optimizer and its inputs."""
    model, inputs = ZOO[name]()
    pruner = manual_pruner(model, inputs)
    groups = accepted(pruner.parameter_groups(lr=1e-3), optimizer)
    return pruner, optimizer(groups), inputs


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", FEW)
def test_training_commutes_with_removal(name, optimizer):
    check_training_commutes(*ZOO[name](), OPTIMIZERS[optimizer])


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_training_commutes_with_removal_for_a_dozen_models(name, optimizer):
    check_training_commutes(*ZOO[name](), OPTIMIZERS[optimizer])


@pytest.mark.parametrize("name", sorted(ZOO.keys() - NOTHING_TO_REMOVE))
def test_training_commutes_with_removal_over_the_zoo(name):
    model, inputs = ZOO[name]()
    pruner = check_training_commutes(model, inputs)
    # No gate is one any more, so that one which multiplies twice would show.
    assert_close(
        returned(pruner._gated.without_gates(), inputs),
        returned(pruner.model, inputs),
        what="outputs without gates",
        atol=1e-9,
    )


@pytest.mark.parametrize("name", sorted(NOTHING_TO_REMOVE))
def test_a_network_of_which_nothing_can_go_says_so(name):
    with pytest.raises(ArgumentError, match=r"^nothing in this model can be removed"):
        check_training_commutes(*ZOO[name]())


@pytest.mark.parametrize(
    "name", ["pre_activation", "resnet", "batch_norms", "inverted_residual", "densenet"]
)
def test_training_commutes_with_removal_where_batches_are_normalised(name):
    check_training_commutes(*ZOO[name](), optim.SGD, training=True)


@pytest.mark.parametrize(
    "model", ["unet", "densenet", "splits", "weight_norm", "grouped", "flatten", "lstm"]
)
def test_removing_bit_by_bit_is_removing_once(model):
    """Every unit that is closed goes alone, in another order; the model is the same."""
    pruner, _, inputs = make(model, optim.SGD)
    whole = copy.deepcopy(pruner.model)
    for index in (1, 0, 1):
        for gate in pruner.gates.values():
            if gate.size > 3:
                gate.logits.data[index] -= 9.0
        pruner.remove_closed_()
    once, *_ = make(model, optim.SGD)
    once.model.load_state_dict(whole.state_dict())
    for name, gate in once.gates.items():
        gone = sorted(
            set(range(gate.size)) - set(pruner.plan.kept.get(name, range(gate.size)))
        )
        gate.logits.data[gone] -= 9.0
    once.remove_closed_()
    assert once.plan.tensors == pruner.plan.tensors
    expected = pytree.tree_leaves(call(once.model, inputs))
    actual = pytree.tree_leaves(call(pruner.model, inputs))
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def test_orthogonalised_updates_commute_once_a_unit_has_no_momentum():
    check_training_commutes(*ZOO["mlp"](), Orthogonal)


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_factored_state_is_cut_along_the_dimensions_it_has(name):
    pruner, optimizer, inputs = make(name, optim.Adafactor)
    close_some_(pruner.gates.values())
    train_(pruner.model, inputs, optimizer)
    pruner.remove_closed_(optimizer)
    train_(pruner.model, inputs, optimizer)
    for p in pruner.model.parameters():
        rows, columns = (optimizer.state[p].get(k) for k in ("row_var", "col_var"))
        assert rows is None or rows.shape == (*p.shape[:-1], 1)
        assert columns is None or columns.shape == (*p.shape[:-2], 1, p.shape[-1])


def test_muon_keeps_training_matrices_that_were_cut():
    pruner, _, inputs = make("mlp", optim.Adam)
    matrices = [p for p in pruner.model.parameters() if p.ndim == 2]
    others = [p for p in pruner.model.parameters() if p.ndim != 2]
    optimizers = optim.Muon(matrices), optim.Adam(others)
    close_some_(pruner.gates.values())
    for _ in range(2):
        for optimizer in optimizers:
            train_(pruner.model, inputs, optimizer, steps=1)
        pruner.remove_closed_(*optimizers)
    held = {p for o in optimizers for g in o.param_groups for p in g["params"]}
    assert held == set(pruner.model.parameters())


def select(tensor, dims):
    for dim, kept in dims.items():
        tensor = tensor.index_select(dim, torch.tensor(kept))
    return tensor


def test_optimizer_state_of_the_survivors_is_what_it_was():
    pruner, optimizer, inputs = make("lenet", optim.Adam)
    close_some_(pruner.gates.values())
    train_(pruner.model, inputs, optimizer)
    before = {
        name: copy.deepcopy(optimizer.state[p])
        for name, p in pruner.model.named_parameters()
    }
    pruner.remove_closed_(optimizer)
    for name, p in pruner.model.named_parameters():
        dims = pruner.plan.tensors.get(name)
        if dims is not None:
            for key in ("exp_avg", "exp_avg_sq"):
                expected = select(before[name][key], dims)
                assert torch.equal(optimizer.state[p][key], expected)
            assert optimizer.state[p]["step"] == before[name]["step"]


def times_open(gate, steps):
    """For each step which units are open, while task and penalty pull at the gate."""
    optimizer = optim.SGD(gate.parameters(), lr=1.0, momentum=0.9)
    worth = torch.randn(gate.size)
    for _ in range(steps):
        optimizer.zero_grad()
        task = -(gate.values() * worth).sum()
        (task + 0.01 * gate.prob_open().sum()).backward()
        optimizer.step()
        yield gate.is_open()


@pytest.mark.parametrize("seed", range(5))
def test_closed_noiseless_sigmoid_gates_never_reopen(seed):
    torch.manual_seed(seed)
    gate = dp.Gate(40)
    history = torch.stack(list(times_open(gate, steps=60)))
    assert not history.all()
    assert not gate.at_floor()
    assert torch.equal(history, history.cummin(0).values)


def test_closed_noiseless_sigmoid_gates_have_no_task_gradient():
    gate = dp.Gate(6).double()
    gate.logits.data[:3] -= 1.0
    gate(torch.rand(4, 6).double()).square().sum().backward()
    assert torch.equal(gate.logits.grad != 0, gate.is_open())


def test_competing_gates_can_reopen():
    gate = dp.Gate(6, u="softmax")
    gate.logits.data[:3] -= 0.5
    closed = ~gate.is_open()
    gate.logits.data[3:] -= 3.0  # the others lose mass, so the closed ones win it
    assert (closed & gate.is_open()).any()


class Regression(nn.Module):
    """x -> fc1 -> relu -> fc2; only a few hidden units are needed."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 24)
        self.fc2 = nn.Linear(24, 1)

    def forward(self, x):
        return self.fc2(self.fc1(x).relu())


def noisy_run(seed, every):
    """Final width and loss of a small task with noisy gates."""
    torch.manual_seed(seed)
    x = torch.randn(64, 8)
    y = (x[:, :1] * x[:, 1:2]).tanh()
    model = Regression()
    gate = partial(dp.Gate, dropout=0.05, learn_dropout=False)
    pruner = dp.Pruner(
        model,
        x,
        strength=0.02,
        gate=lambda group: gate(group.size),
        remove_every=every,
        reopen=0.01,
    )
    optimizer = optim.Adam(pruner.parameter_groups(lr=1e-2, gate_lr=0.05))
    for _ in range(300):
        optimizer.zero_grad()
        (nn.functional.mse_loss(model(x), y) + pruner.penalty()).backward()
        optimizer.step()
        pruner.step(optimizer)
    width = int(pruner.gates["fc1"].is_open().sum())
    final = pruner.finalize().eval()
    with torch.no_grad():
        return width, nn.functional.mse_loss(final(x), y).item(), bool(pruner.history)


@pytest.mark.slow
def test_with_noise_removal_changes_no_distribution():
    """Two-sample Kolmogorov-Smirnov tests at 1 %, 20 seeds each, disjoint."""
    from scipy.stats import ks_2samp

    live = [noisy_run(seed, every=10) for seed in range(20)]
    late = [noisy_run(seed, every=10**6) for seed in range(100, 120)]
    assert all(removed for *_, removed in live)
    for ours, theirs in zip(
        zip(*live, strict=True), zip(*late, strict=True), strict=True
    ):
        assert ks_2samp(ours, theirs).pvalue > 0.01

import copy
import threading
from functools import cache

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

import diffprune as dp
from diffprune.errors import ArgumentError

REENTRANT = pytest.mark.parametrize("reentrant", [True, False])
# Said of every checkpoint in a checkpoint, whose gradients are there all the same.
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")

NOISE = pytest.mark.parametrize("noise", [None, 0.3])


class Net(nn.Module):
    """A checkpoint in a checkpoint, then another; gates inside and outside."""

    def __init__(self, reentrant, **options):
        super().__init__()
        self.reentrant, self.options = reentrant, options
        self.stem = nn.Linear(8, 12)
        self.body = nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.Dropout(0.2))
        self.deep = nn.Linear(10, 7)
        self.next = nn.Sequential(nn.Linear(7, 6), nn.Tanh())
        self.head = nn.Linear(6, 3)

    def again(self, part, x):
        if self.reentrant is None:
            return part(x)
        return checkpoint(part, x, use_reentrant=self.reentrant, **self.options)

    def both(self, x):
        return self.again(self.deep, self.body(x)).relu()

    def forward(self, x):
        x = self.again(self.both, self.stem(x).relu())
        return self.head(self.again(self.next, x))


class Placed(nn.Module):
    """Gates that a user placed, inside and outside of a checkpoint; one used twice."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.stem, self.deep, self.head = (
            nn.Linear(8, 10),
            nn.Linear(10, 10),
            nn.Linear(10, 3),
        )
        self.before, self.inside = dp.Gate(10), dp.Gate(10, dropout=0.3)
        dp.gate_weight(self.head)

    def part(self, x):
        return self.inside(self.deep(self.inside(x)).relu())

    def forward(self, x):
        x = self.before(self.stem(x).relu())
        if self.reentrant is None:
            return self.head(self.part(x))
        return self.head(checkpoint(self.part, x, use_reentrant=self.reentrant))


def gated(reentrant, noise=None, **options):
    torch.manual_seed(0)
    model = Net(reentrant, **options).double()

    def gate(group):
        return dp.Gate(group.size, dropout=noise)

    pruner = dp.Pruner(model, example(), strength=1e-2, gate=gate)
    with torch.no_grad():
        for made in pruner.gates.values():
            made.logits[:2] = -3.0
            made.logits[2:] = torch.linspace(0.1, 1, made.size - 2)
    return model, pruner


def example():
    return torch.linspace(-1, 1, 40, dtype=torch.float64).view(5, 8)


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient is not None, name
        torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-14)


def after_one_backward(reentrant, noise):
    """Several passes, some without gradients in between, and one backward."""
    model, pruner = gated(reentrant, noise)
    torch.manual_seed(1)
    loss = pruner.penalty()
    for scale in (1.0, 2.0, 3.0):
        loss = loss + model(example().requires_grad_() * scale).square().mean()
        model.eval()
        with torch.no_grad():
            model(example())
        model.train()
    loss.backward()
    return gradients(model)


@NOISE
@REENTRANT
def test_checkpoints_do_not_change_gradients(reentrant, noise):
    expected = after_one_backward(None, noise)
    assert_same(after_one_backward(reentrant, noise), expected)


@NOISE
@REENTRANT
def test_gradients_accumulate_over_steps(reentrant, noise):
    def accumulated(reentrant):
        model, pruner = gated(reentrant, noise)
        torch.manual_seed(1)
        for scale in (1.0, 2.0):
            x = example().requires_grad_() * scale
            (model(x).square().mean() + pruner.penalty()).backward()
        return gradients(model)

    assert_same(accumulated(reentrant), accumulated(None))


@REENTRANT
def test_placed_gates_are_checkpointed_like_any_layer(reentrant):
    def once(reentrant):
        torch.manual_seed(0)
        model = Placed(reentrant).double()
        pruner = dp.Pruner(model, example(), strength=1e-2)
        torch.manual_seed(1)
        (model(example()).square().mean() + pruner.penalty()).backward()
        return gradients(model)

    assert_same(once(reentrant), once(None))


@NOISE
@REENTRANT
def test_the_whole_model_can_be_checkpointed(reentrant, noise):
    def once(is_checkpointed):
        model, _ = gated(None, noise)
        torch.manual_seed(1)
        x = example().requires_grad_()
        y = checkpoint(model, x, use_reentrant=reentrant) if is_checkpointed else None
        y = model(x) if y is None else y
        y.square().mean().backward()
        return gradients(model)

    found, expected = once(is_checkpointed=True), once(is_checkpointed=False)
    assert_same(found, expected)


@NOISE
@REENTRANT
def test_a_layer_that_is_called_on_its_own_is_checkpointed_too(reentrant, noise):
    def once(is_checkpointed):
        model, _ = gated(None, noise)
        torch.manual_seed(1)
        x = example().repeat(1, 2)[:, :12].requires_grad_()
        call = checkpoint if is_checkpointed else lambda f, x, **_: f(x)
        y = call(model.body, x, use_reentrant=reentrant)
        y.square().mean().backward()
        return {n: g for n, g in gradients(model).items() if g is not None}

    found, expected = once(is_checkpointed=True), once(is_checkpointed=False)
    assert any("logits" in name for name in expected)
    assert_same(found, expected)


@REENTRANT
def test_noise_that_cannot_be_told_is_refused(reentrant):
    model, _ = gated(reentrant, noise=0.3, preserve_rng_state=False)
    loss = model(example().requires_grad_()).square().mean()
    with pytest.raises(dp.errors.ArgumentError, match="preserve_rng_state=True"):
        loss.backward()


@NOISE
@REENTRANT
def test_training_commutes_with_checkpoints(reentrant, noise):
    def trained(reentrant):
        model, pruner = gated(reentrant, noise)
        optimizer = torch.optim.Adam(pruner.parameter_groups(lr=0.05))
        torch.manual_seed(1)
        for _ in range(20):
            optimizer.zero_grad()
            x = example().requires_grad_()
            (model(x).square().mean() + pruner.penalty()).backward()
            optimizer.step()
        pruner.remove_closed_(optimizer)
        return dict(model.named_parameters())

    expected, found = trained(None), trained(reentrant)
    assert {n: p.shape for n, p in found.items()} == {
        n: p.shape for n, p in expected.items()
    }
    for name, parameter in expected.items():
        torch.testing.assert_close(found[name], parameter, rtol=1e-6, atol=1e-9)


def bert():
    config = BertConfig(
        vocab_size=97,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
    )
    return BertForSequenceClassification(config)


def llama():
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


@REENTRANT
@NOISE
@pytest.mark.parametrize("make", [bert, llama])
def test_models_of_transformers_train_with_gradient_checkpointing(
    make, noise, reentrant
):
    expected = gradients_of_one_pass(make, noise, None)
    assert any("logits" in name for name in expected)
    assert_same(gradients_of_one_pass(make, noise, reentrant), expected)


@cache
def gradients_of_one_pass(make, noise, reentrant):
    """Of a gated model; without checkpoints if `reentrant` is None."""
    torch.manual_seed(0)
    model = make().double().train()
    tokens = torch.randint(97, (2, 6))
    pruner = dp.Pruner(
        model,
        {"input_ids": tokens},
        strength=1e-2,
        gate=lambda group: dp.Gate(group.size, dropout=noise),
    )
    if reentrant is not None:
        options = {"use_reentrant": reentrant}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        model.enable_input_require_grads()
    torch.manual_seed(2)
    loss = model(input_ids=tokens).logits.square().mean() + pruner.penalty()
    loss.backward()
    return {n: g for n, g in gradients(model).items() if g is not None}


@REENTRANT
def test_threads_do_not_see_the_gates_of_each_other(reentrant):
    model, _ = gated(reentrant)
    model.eval()
    expected = model(example()).detach()
    wrong, start = [], threading.Barrier(4)

    def work():
        start.wait()
        for _ in range(30):
            y = model(example().requires_grad_())
            if not torch.allclose(y, expected, rtol=1e-12):
                wrong.append(y)
            torch.autograd.backward(y.sum())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())


# Tracing looks at gradients that are not there.
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("reentrant", [None, False])
def test_compiled_models_have_the_gradients_of_plain_ones(reentrant):
    expected_model, _ = gated(None)
    expected_model.eval()(example()).square().mean().backward()
    model, _ = gated(reentrant)
    model.eval()
    compiled = torch.compile(model, backend="aot_eager")
    compiled(example()).square().mean().backward()
    assert_same(gradients(model), gradients(expected_model))


def test_a_pass_that_fails_leaves_no_values_behind():
    model, pruner = gated(None)
    with pytest.raises(RuntimeError):
        model(torch.rand(5, 9, dtype=torch.float64))
    with torch.no_grad():
        pruner.gates["stem"].logits.fill_(-3.0)
    closed = model.body(torch.ones(5, 12, dtype=torch.float64))
    assert pruner.gates["stem"].values().count_nonzero() == 2
    with torch.no_grad():
        pruner.gates["stem"].logits[:6] = 3.0
    assert not torch.equal(model.body(torch.ones(5, 12, dtype=torch.float64)), closed)


@NOISE
@REENTRANT
def test_gradients_of_gates_in_checkpoints_are_heard(reentrant, noise):
    model, pruner = gated(reentrant, noise)
    model(example().requires_grad_()).square().mean().backward()
    slopes = pruner._gated.pooled.slopes
    slopes.end_step()
    assert all(squares.any() for squares in slopes.squares().values())


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_budgets_are_met_with_checkpoints(reentrant):
    torch.manual_seed(0)
    model = Net(reentrant).double()
    budget = dp.Budget(macs=0.5, steps=20)
    pruner = dp.Pruner(model, example(), budget=budget)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=0.01))
    for _ in range(20):
        optimizer.zero_grad()
        x = example().requires_grad_()
        (model(x).square().mean() + pruner.penalty()).backward()
        optimizer.step()
        pruner.step(optimizer)
    assert pruner.shape().macs <= 0.5 * pruner.dense.macs


class ReadsItself(nn.Module):
    """Reads parameters of its own inside a checkpoint, with no layer around them."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.stem, self.head = nn.Linear(8, 12), nn.Linear(10, 3)
        self.weight = nn.Parameter(torch.randn(10, 12))

    def part(self, x):
        return nn.functional.linear(x, self.weight).tanh()

    def forward(self, x):
        x = self.stem(x).relu()
        if self.reentrant is None:
            return self.head(self.part(x))
        return self.head(checkpoint(self.part, x, use_reentrant=self.reentrant))


class SharesAWeight(ReadsItself):
    """Two layers have one weight, and each is a checkpoint."""

    def __init__(self, reentrant):
        super().__init__(reentrant)
        self.one, self.other = nn.Linear(12, 10), nn.Linear(12, 10)
        self.weight = self.other.weight = self.one.weight

    def forward(self, x):
        x = self.stem(x).relu()
        parts = (self.one, self.other)
        if self.reentrant is None:
            return self.head(sum(part(x).tanh() for part in parts))
        again = [checkpoint(p, x, use_reentrant=self.reentrant) for p in parts]
        return self.head(sum(out.tanh() for out in again))


def pruned_gradients(kind, reentrant):
    torch.manual_seed(0)
    model = kind(reentrant).double()
    pruner = dp.Pruner(model, example(), strength=1e-2)
    with torch.no_grad():
        for made in pruner.gates.values():
            made.logits[:2] = -3.0
            made.logits[2:] = torch.linspace(0.1, 1, made.size - 2)
    (model(example().requires_grad_()).square().mean() + pruner.penalty()).backward()
    found = gradients(model)
    assert type(pruner.finalize().state_dict()["weight"]) is torch.Tensor
    assert all(type(module._parameters) is dict for module in model.modules())
    return found


@REENTRANT
@pytest.mark.parametrize("kind", [ReadsItself, SharesAWeight])
def test_what_a_checkpoint_reads_outside_of_layers_is_gated(kind, reentrant):
    assert_same(pruned_gradients(kind, reentrant), pruned_gradients(kind, None))


def test_a_copy_reads_its_own_gates_in_a_checkpoint():
    torch.manual_seed(0)
    model = ReadsItself(reentrant=False).double()
    pruner = dp.Pruner(model, example(), strength=1e-2)
    copied = copy.deepcopy(pruner)
    with torch.no_grad():
        for made in copied.gates.values():
            made.logits[:2] = -3.0
    found = []
    for one in (pruner, copied, copied):
        one.model.zero_grad()
        one.model(example()).square().mean().backward()
        found.append(one.model.stem.weight.grad.clone())
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[1], found[2])
    assert not found[1][:2].any()


class _Interrupted(nn.Module):
    """Passes on what it gets, or is where Ctrl-C strikes."""

    def __init__(self):
        super().__init__()
        self.strikes = False

    def forward(self, x):
        if self.strikes:
            raise KeyboardInterrupt
        return x


class _Around(nn.Module):
    """A layer whose weights are swapped while another layer runs."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)
        self.between = _Interrupted()

    def forward(self, x):
        hidden = self.first(x).relu()
        weight = self.last.weight
        return nn.functional.linear(self.between(hidden), weight, self.last.bias)


def _slopes_by_autograd(model, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]


def _slopes_by_func(model, x):
    return torch.vmap(torch.func.jacrev(lambda one: model(one).sum()))(x)


@NOISE
def test_gates_learn_from_what_torch_func_makes_of_the_model(noise):
    x, found = torch.rand(6, 4, dtype=torch.float64), []
    for slopes in (_slopes_by_autograd, _slopes_by_func):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 1)).double()
        pruner = dp.Pruner(
            model, x, strength=1e-3, gate=lambda g: dp.Gate(g.size, dropout=noise)
        )
        optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.1))
        torch.manual_seed(1)
        (slopes(model, x) - 1.0).square().sum().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        pruner.step(optimizer)
        found.append([*gradients, pruner.worth["0"]])
    torch.testing.assert_close(*found)
    assert found[1][-1].all()


@pytest.mark.filterwarnings("error")
def test_a_budget_is_met_though_the_model_runs_in_torch_func_alone():
    x = torch.rand(40, 4)
    model = nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 1))
    pruner = dp.Pruner(model, x[:2], budget=dp.Budget(macs=0.5, steps=20))
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2))
    for _ in range(20):
        optimizer.zero_grad()
        (_slopes_by_func(model, x) - 1.0).square().mean().backward()
        optimizer.step()
        pruner.step(optimizer)
    assert model[0].out_features == 10
    pruner.finalize(optimizer)


def test_gates_that_torch_func_transforms_are_refused():
    x = torch.rand(6, 4)
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 1))
    pruner = dp.Pruner(model, x, strength=1e-3)

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (x,)).sum()

    with pytest.raises(ArgumentError, match=r"transforms the gates.*\n.*finalize"):
        torch.func.grad(loss)(dict(model.named_parameters()))
    pruner.finalize()
    torch.func.grad(loss)(dict(model.named_parameters()))


@pytest.mark.parametrize("then", ["forward", "state_dict", "step", "finalize"])
def test_ctrl_c_in_a_forward_pass_leaves_no_gated_parameter(then):
    x = torch.rand(4, 3)
    model = _Around()
    pruner = dp.Pruner(model, x, strength=1e-3, remove_every=1)
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.1))
    own = model.last.weight
    with torch.no_grad():
        pruner.gates["first"].logits[:2] = -9.0
    model(x).sum().backward()
    expected = model(x)
    model.between.strikes = True
    with pytest.raises(KeyboardInterrupt):
        model(x)
    assert model.last.weight is not own  # torch runs no hooks then
    model.between.strikes = False
    if then == "forward":
        assert torch.equal(model(x), expected)
        assert model.last.weight is own
    elif then == "state_dict":
        assert model.state_dict()["last.weight"].data_ptr() == own.data_ptr()
    elif then == "step":
        pruner.step(optimizer)
        assert model.last.weight.shape == (2, 3)
        torch.testing.assert_close(model(x), expected)
    else:
        torch.testing.assert_close(pruner.finalize(optimizer)(x), expected)

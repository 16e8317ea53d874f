"""What no signature suggests, and people do all the same: refused by name, or right."""

import copy
import importlib
import os
import socket
import stat

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune import gates
from diffprune._io.checkpoint import _packed, _read
from diffprune.errors import ArgumentError, DiffpruneError, StorageError, TraceError
from diffprune.testing import check_gate
from tests.campaigns.injection import difference, everything

X = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)
    )


def make(model=None, **options):
    pruner = dp.Pruner(model or net(), X, **(options or {"strength": 1e-3}))
    return pruner, optim.Adam(pruner.parameter_groups(lr=1e-2))


def train_(pruner, optimizer):
    optimizer.zero_grad()
    (pruner.model(X).square().sum() + pruner.penalty()).backward()
    optimizer.step()


def close_(pruner, units=2):
    with torch.no_grad():
        for gate in pruner.gates.values():
            gate.logits[:units] = -20.0


# Parameters that take the place of others.


@pytest.mark.parametrize("how", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_stay_when_units_leave(how):
    pruner, optimizer = make()
    seen = []
    weights = pruner.model[0].weight, pruner.gates["0"].logits
    handles = [
        getattr(w, how)(lambda given, n=n: seen.append((n, len(given))))
        for n, w in enumerate(weights)
    ]
    train_(pruner, optimizer)
    close_(pruner)
    pruner.remove_closed_(optimizer)
    seen.clear()
    train_(pruner, optimizer)
    assert sorted(seen) == [(0, 6), (1, 6)]
    for handle in handles:
        handle.remove()
    seen.clear()
    train_(pruner, optimizer)
    assert not seen


def test_optimizers_of_single_parameters_that_hooks_step_follow_by_name():
    x = X.double()
    pruner = dp.Pruner(net().double(), x, strength=1e-3)
    single, all_at_once = pruner.model, copy.deepcopy(pruner)
    optimizers = {
        name: optim.Adam([weight], lr=1e-2)
        for name, weight in single.named_parameters()
    }

    def step(name):
        optimizers[name].step()
        optimizers[name].zero_grad()

    for name, weight in single.named_parameters():
        weight.register_post_accumulate_grad_hook(lambda _, name=name: step(name))
    optimizer = optim.Adam(all_at_once.parameter_groups(lr=1e-2))
    for number in range(6):
        for one in (pruner, all_at_once):
            if number == 3:
                close_(one)
        (single(x).square().sum() + pruner.penalty()).backward()
        optimizer.zero_grad()
        (all_at_once.model(x).square().sum() + all_at_once.penalty()).backward()
        optimizer.step()
        if number == 3:
            assert pruner.remove_closed_(*optimizers.values()) is not None
            all_at_once.remove_closed_(optimizer)
    torch.testing.assert_close(single(x), all_at_once.model(x), rtol=0, atol=1e-10)


def test_hooks_of_parameters_stay_when_a_model_is_loaded(tmp_path):
    dp.save_pruned(dp.remove(net(), X, keep={"0": torch.arange(8) < 3}), tmp_path)
    model, seen = net(), []
    model[0].weight.register_hook(lambda gradient: seen.append(len(gradient)))
    dp.load_pruned(model, tmp_path)(X).sum().backward()
    assert seen == [3]


def test_units_that_leave_in_inference_mode_leave_a_model_that_trains():
    pruner, optimizer = make()
    train_(pruner, optimizer)
    close_(pruner)
    with torch.inference_mode():
        pruner.remove_closed_(optimizer)
    train_(pruner, optimizer)
    assert pruner.model[0].out_features == 6


def test_a_pruner_that_is_made_in_inference_mode_trains():
    model = net()
    with torch.inference_mode():
        pruner = dp.Pruner(model, X, strength=1e-3)
    train_(pruner, optim.Adam(pruner.parameter_groups(lr=1e-2)))


# Optimizers.


class Lookahead(optim.Optimizer):
    """One that keeps slow weights beside its state, as some in use do."""

    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.param_groups, self.inner = inner.param_groups, inner
        self.slow = [
            [p.detach().clone() for p in g["params"]] for g in self.param_groups
        ]

    def step(self):
        self.inner.step()


def test_an_optimizer_with_copies_beside_its_state_is_refused():
    pruner, optimizer = make()
    wrapped = Lookahead(optimizer)
    train_(pruner, wrapped)
    close_(pruner)
    before = everything(pruner, wrapped)
    with pytest.raises(ArgumentError, match="a copy of every parameter, `slow`"):
        pruner.remove_closed_(wrapped)
    assert not difference(before, everything(pruner, wrapped))


def test_a_scheduler_of_another_optimizer_is_refused():
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    other = optim.lr_scheduler.StepLR(optim.SGD(net().parameters(), lr=0.1), 1)
    pruner, _ = make(model)
    with pytest.raises(ArgumentError, match="StepLR schedules another optimizer"):
        pruner.add_to(optimizer, other)
    assert len(optimizer.param_groups) == 1


# Gates, strengths, models.

ONE_GATE = dp.Gate(8)


def on_meta(group):
    with torch.device("meta"):
        return dp.Gate(group.size)


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (on_meta, "for `0` on the meta device"),
        (lambda _: ONE_GATE, "one gate for `0` and `2`"),
    ],
    ids=["meta", "shared"],
)
def test_gates_of_no_use_are_refused(gate, words):
    with pytest.raises(ArgumentError, match=words):
        make(strength=1e-3, gate=gate)


@pytest.mark.parametrize("strength", [1e308, 3e38, dp.by_macs(1e37)])
def test_a_strength_that_makes_the_penalty_infinite_is_refused(strength):
    model = net()
    before = everything(model)
    with pytest.raises(ArgumentError, match=r"strength.* finite|is infinite"):
        make(model, strength=strength)
    assert not difference(before, everything(model))


class Silent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x):
        self.layer(x)


@pytest.mark.parametrize("call", [dp.find_groups, dp.compact, dp.Pruner])
def test_a_model_that_returns_nothing_is_refused(call):
    options = {"strength": 1e-3} if call is dp.Pruner else {}
    with pytest.raises(ArgumentError, match="Silent, returns no tensor"):
        call(Silent(), X, **options)


def compiled_inside():
    model = net()
    model[2] = torch.compile(model[2], backend="eager")
    return model


def compiled_early():
    model = net()
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (compiled_inside, "`2` was made by `torch.compile`"),
        (compiled_early, "called before the pruner was made"),
    ],
)
def test_code_that_was_compiled_too_early_is_refused(build, words):
    with pytest.raises(ArgumentError, match=words):
        make(build())


def test_a_law_for_no_sizes_is_refused():
    with pytest.raises(ArgumentError, match="names no size"):
        check_gate(dp.Gate, sizes=())


# What a file cannot hold.


def quantized():
    kinds = {nn.Linear}
    return torch.ao.quantization.quantize_dynamic(net(), kinds)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("save", [dp.save_pruned, gates.save_sparse])
def test_weights_that_are_no_tensors_are_not_left_out_in_silence(save, tmp_path):
    with pytest.raises(ArgumentError, match="_packed_params"):
        save(quantized(), tmp_path / "it")
    assert not (tmp_path / "it").exists()


def with_buffer(values):
    model = nn.Linear(3, 2)
    model.register_buffer("more", values)
    return model


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.uint16])
def test_sparse_files_hold_numbers_that_torch_cannot_count(kind, tmp_path):
    gates.save_sparse(with_buffer(torch.ones(50).to(kind)), tmp_path / "it")
    fresh = with_buffer(torch.zeros(50).to(kind))
    assert gates.load_sparse(fresh, tmp_path / "it").more.float().sum() == 50


def test_sparse_buffers_are_refused_by_name(tmp_path):
    with pytest.raises(ArgumentError, match="`more` of the model is no dense tensor"):
        gates.save_sparse(with_buffer(torch.ones(5).to_sparse()), tmp_path / "it")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.eye(3).to_sparse(), r"extra\['it'\] is a tensor that is stored"),
        (10**5000, r"extra\['it'\] is a number of too many digits"),
        ([10**5000], "too many digits"),
    ],
    ids=["sparse", "long", "long in a list"],
)
def test_extra_values_that_no_file_holds_are_refused(value, words, tmp_path):
    pruner, optimizer = make()
    with pytest.raises(ArgumentError, match=words):
        dp.save_checkpoint(tmp_path / "run", pruner, optimizer, extra={"it": value})
    assert not (tmp_path / "run").exists()


class Noting(nn.Linear):
    note = 1

    def get_extra_state(self):
        return {"note": self.note}

    def set_extra_state(self, state):
        self.note = state["note"]


def test_a_checkpoint_holds_extra_state_of_modules(tmp_path):
    def build():
        return nn.Sequential(Noting(3, 8), nn.ReLU(), nn.Linear(8, 2))

    pruner, optimizer = make(build())
    pruner.model[0].note = 7
    dp.save_checkpoint(tmp_path / "run", pruner, optimizer)
    fresh = make(build())
    dp.load_checkpoint(tmp_path / "run", *fresh)
    assert fresh[0].model[0].note == 7


# Files that were forged, digest and all.


def _set(*path):
    *places, last, value = path

    def change_(state):
        for place in places:
            state = state[place]
        state[last] = value

    return change_


def _each(key, change_):
    """Change what the optimizer remembers of every parameter."""

    def change_all_(state):
        for values in state["optimizer"]["state"].values():
            change_(values, key)

    return change_all_


FORGED = {
    "negative steps": _set("pruner", "steps", -5),
    "half a step": _set("pruner", "steps", 2.5),
    "a bool of steps": _set("pruner", "steps", bool(1)),
    "endless steps": _set("pruner", "steps", 2**70),
    "looks": _set("pruner", "looks", "0", torch.rand(8)),
    "negative squares": _set("pruner", "squares", "0", torch.full((8,), -1.0)),
    "complex squares": _set("pruner", "squares", "0", torch.full((8,), 1j)),
    "history": _set("pruner", "history", [1, 2]),
    "betas": _set("optimizer", "param_groups", 0, "betas", (5, "x")),
    "no eps": _set("optimizer", "param_groups", 0, "eps", None),
    "step nan": _set("optimizer", "state", 0, "step", torch.tensor(float("nan"))),
    "step below zero": _set("optimizer", "state", 0, "step", torch.tensor(-1.0)),
    "step of text": _set("optimizer", "state", 0, "step", "three"),
    "no average": _set("optimizer", "state", 0, "exp_avg", None),
    "a negative rate": _set("optimizer", "param_groups", 0, "lr", -1.0),
    "two rates": _set("optimizer", "param_groups", 0, "lr", torch.ones(2)),
    "betas above one": _set("optimizer", "param_groups", 0, "betas", (2.0, 3.0)),
    "other averages": _set("optimizer", "param_groups", 0, "amsgrad", bool(1)),
    "no squares": _each("exp_avg_sq", lambda state, key: state.pop(key)),
    "an average of one": _each(
        "exp_avg", lambda state, key: state.__setitem__(key, 1.0)
    ),
    "extra": _set("extra", [1]),
    "whole weights": _set("model", "0.weight", torch.ones(8, 3, dtype=torch.int64)),
    "a weight of text": _set("model", "0.weight", "heavy"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_checkpoints_change_nothing(name, tmp_path):
    pruner, optimizer = make()
    train_(pruner, optimizer)
    path = tmp_path / "run"
    dp.save_checkpoint(path, pruner, optimizer)
    state = _read(path)
    FORGED[name](state)
    path.write_bytes(_packed(state))
    fresh = make()
    before = everything(*fresh)
    with pytest.raises(ArgumentError, match=str(path)):
        dp.load_checkpoint(path, *fresh)
    assert not difference(before, everything(*fresh))


def test_a_rate_that_the_kernel_cannot_take_is_refused(tmp_path):
    def run(**options):
        pruner = dp.Pruner(net(), X, strength=1e-3)
        return pruner, optim.Adam(pruner.model.parameters(), **options)

    saved = run(lr=torch.tensor(1e-2))
    train_(*saved)
    dp.save_checkpoint(tmp_path / "run", *saved)
    with pytest.raises(ArgumentError, match="lr as a Tensor is not supported"):
        dp.load_checkpoint(tmp_path / "run", *run(lr=1e-2, foreach=True))


def test_loading_units_of_the_same_number_that_fails_late_changes_nothing(tmp_path):
    def run(*closed):
        pruner, optimizer = make()
        train_(pruner, optimizer)
        with torch.no_grad():
            pruner.gates["0"].logits[list(closed)] = -20.0
        pruner.remove_closed_(optimizer)
        return pruner, optimizer

    path = tmp_path / "run"
    dp.save_checkpoint(path, *run(0, 1))
    state = _read(path)
    state["random"].clear()
    path.write_bytes(_packed(state))
    fresh = run(4, 5)
    before = everything(*fresh)
    with pytest.raises(ArgumentError, match="random generators"):
        dp.load_checkpoint(path, *fresh)
    assert not difference(before, everything(*fresh))


# Memory that is not quite the model's own.


class Overlapping(nn.Module):
    def __init__(self):
        super().__init__()
        whole = torch.zeros(6)
        self.a, self.b = nn.Parameter(whole[:4]), nn.Parameter(whole[2:])


def _sparse_of(model, path):
    """A file of a model that is like this one, with memory of its own."""
    for parameter in model.parameters():
        parameter.data = torch.rand(parameter.shape)
    gates.save_sparse(model, path)


def _expanded():
    layer = nn.Linear(3, 2)
    layer.weight = nn.Parameter(torch.zeros(1, 3).expand(2, 3))
    return layer


def _of_inference():
    with torch.inference_mode():
        return nn.Linear(3, 2)


@pytest.mark.parametrize(
    ("build", "like", "words"),
    [
        (Overlapping, Overlapping, "shares memory with another tensor"),
        (_expanded, lambda: nn.Linear(3, 2), "cannot be loaded"),
        (_of_inference, lambda: nn.Linear(3, 2), "made within"),
    ],
)
def test_memory_that_cannot_hold_a_file_is_refused(build, like, words, tmp_path):
    _sparse_of(like(), tmp_path / "it")
    model = build()
    before = everything(model)
    with pytest.raises(ArgumentError, match=words):
        gates.load_sparse(model, tmp_path / "it")
    assert not difference(before, everything(model))


def test_a_tensor_with_the_name_of_the_notes_is_refused(tmp_path):
    model = nn.Module()
    model.register_parameter("__metadata__", nn.Parameter(torch.ones(2)))
    with pytest.raises(ArgumentError, match="__metadata__"):
        dp.save_pruned(model, tmp_path / "it")
    assert not (tmp_path / "it").exists()


def test_loading_does_not_ask_for_the_default_device(tmp_path):
    keep = {"0": torch.arange(8) < 3}
    dp.save_pruned(dp.remove(net(), X, keep=keep), tmp_path)
    model = net()
    with torch.device("meta"):
        dp.load_pruned(model, tmp_path)
    assert not any(parameter.is_meta for parameter in model.parameters())


# Places that are no files.


def _pipe(path):
    os.mkfifo(path)


def _socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes are POSIX")
@pytest.mark.parametrize("place", [_pipe, _socket])
def test_a_file_takes_the_place_of_files_only(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    path = tmp_path / "it"
    place(path.relative_to(tmp_path))
    for write in (
        lambda: dp.save_checkpoint(path, *make()),
        lambda: gates.save_sparse(net(), path),
        lambda: dp.to_onnx(net(), X, path),
    ):
        with pytest.raises(StorageError, match="a device, a pipe or a socket"):
            write()
    assert not stat.S_ISREG(path.stat().st_mode)


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes are POSIX")
def test_reading_never_waits_for_a_pipe(tmp_path):
    dp.save_pruned(net(), tmp_path / "small")
    for name in ("blueprint.json", "model.safetensors"):
        path = tmp_path / "small" / name
        kept = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(StorageError, match="it is a device or a pipe"):
            dp.load_pruned(net(), tmp_path / "small")
        path.unlink()
        path.write_bytes(kept)
    dp.load_pruned(net(), tmp_path / "small")


# Trainers.


@pytest.mark.parametrize("library", ["lightning", "transformers"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "how hard to push"),
        ({"strength": 1e-3, "budget": dp.Budget(macs=0.5)}, "leave `strength=` out"),
        ({"budget": []}, "asks for nothing"),
        ({"budget": dp.Budget(macs=0.5), "patience": 3}, "leave `patience=` out"),
    ],
)
def test_trainers_hear_early_of_options_that_mean_nothing(library, options, words):
    pytest.importorskip(library)
    module = importlib.import_module(f"diffprune.integrations.{library}")
    with pytest.raises(DiffpruneError, match=words):
        module.Pruning(example_inputs=copy.copy(X), **options)


def test_a_model_that_returns_a_cache_is_explained():
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    config = transformers.T5Config(vocab_size=9, decoder_start_token_id=0, **sizes)
    model = transformers.T5ForConditionalGeneration(config)
    inputs = {"input_ids": torch.ones(2, 3).long(), "labels": torch.ones(2, 3).long()}
    with pytest.raises(TraceError, match='"use_cache": False'):
        dp.find_groups(model, inputs)
    assert dp.find_groups(model, {**inputs, "use_cache": False})

"""Files from anywhere: what does not fit is refused, and nothing has changed."""

import copy
import json
import struct
from functools import reduce
from operator import getitem, setitem
from tempfile import TemporaryDirectory

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from torch import nn, optim

import diffprune as dp
from diffprune._core import tensor_files
from diffprune.errors import ArgumentError


def tampered(folder, change, tensors=None):
    """Change the blueprint, and whatever proves that the files belong together."""
    path, weights = folder / "blueprint.json", folder / "model.safetensors"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    held = safetensors.torch.load_file(weights)
    (tensors or dict)(held)
    weights.write_bytes(tensor_files.packed(held, path.read_text()))


def everything(model, optimizer):
    """What a load may change, by identity and by value."""
    modules = list(model.named_modules())
    plain = [{k: v for k, v in vars(m).items() if k[0] != "_"} for _, m in modules]
    tensors = [*model.named_parameters(), *model.named_buffers()]
    params = [group["params"] for group in optimizer.param_groups]
    state = model.state_dict(), optimizer.state_dict()
    return copy.copy((modules, plain, tensors, params)), copy.deepcopy(state)


def assert_refused(folder, model, match):
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    objects, values = everything(model, optimizer)
    for options in ({}, {"optimizer": optimizer}):
        with pytest.raises(ArgumentError, match=match):
            dp.load_pruned(model, folder, **options)
    after, values_after = everything(model, optimizer)
    assert str(after) == str(objects)
    pairs = zip(after[2], objects[2], strict=True)
    assert all(one is other for (_, one), (_, other) in pairs)
    torch.testing.assert_close(values_after, values, rtol=0, atol=0)


def put(place, value):
    """A change of a nested dict: `put("a/b", 1)` sets `data["a"]["b"]`."""
    *path, last = place.split("/")

    def change(data):
        for key in path:
            data = data[key]
        data[last] = value

    return change


IDENTITY = {"kind": "Identity", "arguments": {}, "parts": []}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put("version", 2), "has version 2, this diffprune reads version 1"),
        (put("version", None), "has version None"),
        (put("format", "other"), "no blueprint of a pruned model: .*'other'"),
        (lambda data: data.pop("sizes"), "no blueprint of a pruned model: .*sizes"),
        (put("sizes", []), "no blueprint"),
        (put("sizes/fc1/out_features", "8"), "an integer or a list of them, got '8'"),
        (put("sizes/fc1/out_features", 8.0), "an integer or a list of them, got 8.0"),
        (put("sizes/fc1", {"out_features": True}), "an integer or a list .* got True"),
        (put("sizes/fc1/out_features", 10**12), "`fc1.out_features` is 1000000000000"),
        (put("sizes/fc1/out_features", -1), "`fc1.out_features` is -1 in it, 16 here"),
        (put("sizes/fc1/out_features", [8]), r"`fc1.out_features` is .8,. in it"),
        (
            put("sizes/fc1/out_features", 7),
            r"`fc1.out_features` is 7 and `fc1.weight` has the shape .8, 5.",
        ),
        (put("sizes/norm/num_features", 3), "`norm.num_features` is 3 and `norm.weig"),
        (put("sizes/depth", {}), "it has a module `depth`, the model has none"),
        (put("sizes/..", {"x": 1}), "it has a module `..`"),
        (
            lambda data: data["plain"].update({"../../etc": IDENTITY}),
            "it has a module `../../etc`",
        ),
        (put("plain", {"fc1": {**IDENTITY, "kind": "Linear"}}), "may not ask for"),
        (put("plain", {"fc1": {**IDENTITY, "kind": "os.system"}}), "may not ask for"),
        (put("plain", {"fc1": {**IDENTITY, "parts": [IDENTITY]}}), "may not ask for"),
        (put("plain", {"fc1": {**IDENTITY, "arguments": {"x": 1}}}), "may not ask for"),
        (put("plain", {"fc1": IDENTITY}), "it has `fc1.bias`, the model does not"),
        (put("tied", {"fc1.bias": "fc9.bias"}), "should be `fc9.bias`, which it lacks"),
        (put("tied", {"fc1.bias": "fc2.weight"}), r"`fc1.bias` is .6, 8. in it"),
        (put("tied", {"fc1.bias": 3}), "expected a name, got 3"),
    ],
)
def test_blueprints_that_do_not_fit_are_refused(folder, make, change, match):
    tampered(folder, change)
    assert_refused(folder, make(), match)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.pop("norm.running_var"), "it lacks `norm.running_var`"),
        (
            lambda t: t.update({"../../etc/passwd": torch.ones(1)}),
            "it has `../../etc/passwd`",
        ),
        (put("fc1.bias", torch.ones(17)), r"`fc1.bias` is .17. in it, .16. here"),
        (put("fc1.bias", torch.ones(8, 1)), r"`fc1.bias` is .8, 1. in it, .16. here"),
        (put("fc1.bias", torch.ones(8).int()), "`fc1.bias` is torch.int32 in it"),
        (
            put("norm.num_batches_tracked", torch.tensor(0.5)),
            "torch.float32 in it, tor",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(folder, make, change, match):
    tampered(folder, lambda _: None, change)
    assert_refused(folder, make(), match)


@pytest.mark.parametrize("name", ["blueprint.json", "model.safetensors"])
@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_truncated_files_are_refused(folder, make, name, size):
    path = folder / name
    path.write_bytes(path.read_bytes()[:size])
    assert_refused(folder, make(), "damaged|no blueprint")


def header_of_absurd_size(path):
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")


def tensor_of_absurd_size(path):
    entry = {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}
    header = json.dumps({"fc1.bias": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))


@pytest.mark.parametrize("write", [header_of_absurd_size, tensor_of_absurd_size])
def test_absurd_sizes_are_refused(folder, make, write):
    write(folder / "model.safetensors")
    assert_refused(folder, make(), "model.safetensors` is damaged")


@pytest.mark.parametrize("text", [b"\xff\xfe", b"[" * 100_000, b"3", b'{"format": 1}'])
def test_what_is_not_json_is_refused(folder, make, text):
    (folder / "blueprint.json").write_bytes(text)
    assert_refused(folder, make(), "damaged|no blueprint")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(data, path=()):
    """All places in nested dicts and lists."""
    rows = enumerate(data) if isinstance(data, list) else ()
    for key, value in data.items() if isinstance(data, dict) else rows:
        yield (*path, key)
        yield from places(value, (*path, key))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.integers(0, 10**6), value=JSON)
def test_any_other_value_anywhere_is_loaded_or_refused(small, make, choice, value):
    with TemporaryDirectory() as name:
        folder = dp.save_pruned(small, name)
        data = json.loads((folder / "blueprint.json").read_text())
        every = list(places(data))
        *path, last = every[choice % len(every)]
        tampered(folder, lambda data: setitem(reduce(getitem, path, data), last, value))
        try:
            dp.load_pruned(make(), folder)
        except ArgumentError:
            assert_refused(folder, make(), ".")


def test_a_flipped_bit_is_noticed(folder, make):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    assert_refused(folder, make(), "is damaged: what it holds is not what was written")


def test_pickles_are_not_read(folder, make):
    torch.save(make().state_dict(), folder / "model.safetensors")
    assert_refused(folder, make(), "model.safetensors` is damaged")


def test_files_of_different_saves_are_refused(folder, make, tmp_path):
    other = dp.save_pruned(make(), tmp_path / "other")
    (other / "blueprint.json").replace(folder / "blueprint.json")
    assert_refused(folder, make(), "were not saved together")


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(5, 16)


OTHERS = {
    "fewer units": (lambda make: make(7), r"`fc1.out_features` is 8 in it, 7 here"),
    "fewer layers": (lambda _: Other(), "the saved `Net` is not a smaller version of"),
    "fewer steps": (lambda make: make(depth=0), "`depth` is 1 in it, 0 here"),
    "wrapped": (lambda make: nn.DataParallel(make()), "wrapped in DataParallel"),
    "on meta": (lambda make: make().to("meta"), "on the meta device"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_are_refused(folder, make, name):
    build, match = OTHERS[name]
    assert_refused(folder, build(make), match)


def test_what_only_the_forward_notes_is_left_alone(folder, make, small):
    small.seen = 99
    dp.save_pruned(small, folder)
    fresh = make()
    fresh.seen = None
    assert dp.load_pruned(fresh, folder).seen is None


def test_a_module_inside_a_replaced_one_is_refused(folder, make):
    model = make()
    model.fc1 = nn.Sequential(nn.Linear(5, 16))
    tampered(folder, put("plain", {"fc1": IDENTITY, "fc1.0": IDENTITY}))
    assert_refused(folder, model, "it has a module `fc1.0`")


@pytest.mark.parametrize("missing", ["blueprint.json", "model.safetensors"])
def test_a_missing_file_is_a_missing_file(folder, make, missing):
    (folder / missing).unlink()
    with pytest.raises(FileNotFoundError, match=missing):
        dp.load_pruned(make(), folder)


def test_other_methods_may_have_pruned_the_model(make, tmp_path, inputs):
    small = make()
    small.fc1, small.norm = nn.Linear(5, 3), nn.BatchNorm1d(3)
    small.fc2 = nn.Linear(3, 12)
    fresh = dp.load_pruned(make(), dp.save_pruned(small, tmp_path))
    assert torch.equal(fresh.eval()(inputs), small.eval()(inputs))
    assert fresh.fc2.in_features == 3


def test_tuples_are_widths_too(tmp_path):
    def make(width):
        return nn.Sequential(nn.Linear(3, width), nn.LayerNorm(width))

    fresh = dp.load_pruned(make(9), dp.save_pruned(make(4), tmp_path))
    assert fresh[1].normalized_shape == (4,)
    assert fresh(torch.rand(2, 3)).shape == (2, 4)


@pytest.mark.parametrize("kind", [tuple, list])
def test_several_numbers_come_back_as_what_they_were(kind, tmp_path):
    def make(*widths):
        model = nn.Sequential(nn.Linear(3, sum(widths)))
        model.widths = kind(widths)
        return model

    fresh = dp.load_pruned(make(9, 4), dp.save_pruned(make(7, 4), tmp_path))
    assert fresh.widths == kind((7, 4))
    with pytest.raises(ArgumentError, match=r"`widths` is \(9, 4\) in it"):
        dp.load_pruned(make(7, 4), dp.save_pruned(make(9, 4), tmp_path / "larger"))


class Counting(nn.Module):
    """3 -> 5 -> 2; it counts how often it ran, as solvers of equations do."""

    def __init__(self):
        super().__init__()
        self.calls, self.longest = 0, -1
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        self.calls += 1
        self.longest = max(self.longest, len(x))
        return self.last(self.first(x))


def test_what_a_forward_counts_is_to_be_reset(tmp_path):
    x, keep = torch.rand(4, 3), {"first": torch.arange(5) < 2}
    small = dp.remove(Counting(), x, keep=keep)
    for _ in range(7):
        small(x)
    assert small.calls >= 7
    with pytest.raises(ArgumentError, match=r"counts that, .* `model.calls = 0`"):
        dp.load_pruned(Counting(), dp.save_pruned(small, tmp_path))
    small.calls, small.longest = 0, -1
    loaded = dp.load_pruned(Counting(), dp.save_pruned(small, tmp_path))
    assert torch.equal(loaded(x), small(x))


def test_what_lists_have_noted_is_not_loaded(tmp_path):
    def make(width):
        model = nn.Sequential(nn.Linear(3, width))
        model.losses = []
        return model

    small = make(2)
    small.losses += [5, 4]
    fresh = dp.load_pruned(make(4), dp.save_pruned(small, tmp_path))
    assert fresh.losses == []
    assert fresh[0].out_features == 2


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_run_on_what_was_loaded(kind, tmp_path):
    small, x = kind(5, 4, num_layers=2, bidirectional=True), torch.rand(3, 2, 5)
    fresh = kind(5, 9, num_layers=2, bidirectional=True)
    dp.load_pruned(fresh, dp.save_pruned(small, tmp_path))
    assert torch.equal(fresh(x)[0], small(x)[0])
    assert fresh.hidden_size == 4


def zeroed(path):
    """Overwrite a file in place, as a careless program does."""
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))


def test_nothing_that_was_loaded_follows_the_files(make, small, tmp_path):
    optimizer = optim.Adam(small.parameters())
    small(torch.rand(4, 5)).sum().backward()
    optimizer.step()
    folder = dp.save_pruned(small, tmp_path / "saved", optimizer=optimizer)
    fresh = make()
    other = optim.Adam(fresh.parameters())
    dp.load_pruned(fresh, folder, optimizer=other)
    zeroed(folder / "model.safetensors")
    zeroed(folder / "optimizer.safetensors")
    torch.testing.assert_close(
        (fresh.state_dict(), other.state_dict()["state"]),
        (small.state_dict(), optimizer.state_dict()["state"]),
        rtol=0,
        atol=0,
    )


def test_what_keeps_its_shape_keeps_its_memory(make, folder, small):
    fresh = make()
    bias, address = fresh.fc3.bias, fresh.fc3.bias.data_ptr()
    dp.load_pruned(fresh, folder)
    assert fresh.fc3.bias is bias
    assert bias.data_ptr() == address
    assert torch.equal(bias, small.fc3.bias)
    assert fresh.fc3.weight.shape == small.fc3.weight.shape


def test_layers_that_share_memory_in_the_model_alone_get_memory_of_their_own(tmp_path):
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    folder = dp.save_pruned(model, tmp_path / "saved")
    fresh = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    fresh[1].weight.data = fresh[0].weight.data
    dp.load_pruned(fresh, folder)
    torch.testing.assert_close(fresh.state_dict(), model.state_dict(), rtol=0, atol=0)

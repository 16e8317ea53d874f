"""What people pass by mistake, by name; each is made afresh where it could change.

Every argument is given everything in `ANY`, and what looks like its own kind and is
not: see `OF_KIND`, by a word of the argument's annotation.
"""

import decimal
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import diffprune as dp

Make = Callable[[Path], Any]


class Raising(nn.Module):
    def forward(self, *_):
        raise RuntimeError("this model is broken")


class Thing:
    def __init__(self, _one, _two, _three, _four, _five):
        raise ZeroDivisionError("a function of the user's failed")


class Counting(nn.Module):
    """Its forward branches on values."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else x


class Rude:
    """What asks it anything gets an error, messages included."""

    def _refuse(self, *_):
        raise ZeroDivisionError("this object answers nothing")

    __repr__ = __str__ = __bool__ = __eq__ = __hash__ = __fspath__ = _refuse


class RudeModule(nn.Linear):
    def __repr__(self):
        raise ZeroDivisionError("this model does not show itself")


def _fails(*_, **__):
    raise ZeroDivisionError("a function of the user's failed")


ANY: dict[str, Make] = {
    "nan": lambda _: math.nan,
    "inf": lambda _: math.inf,
    "-1": lambda _: -1,
    "-inf": lambda _: -math.inf,
    "0": lambda _: 0,
    "1e30": lambda _: 10**30,
    "2.5": lambda _: 2.5,
    "True": lambda _: True,
    "1j": lambda _: 1j,
    "text": lambda _: "nonsense",
    "no text": lambda _: "",
    "bytes": lambda _: b"nonsense",
    "None": lambda _: None,
    "[]": lambda _: [],
    "()": lambda _: (),
    "{}": lambda _: {},
    "[None]": lambda _: [None],
    "{text: None}": lambda _: {"nonsense": None},
    "{0: 1}": lambda _: {0: 1},
    "set": lambda _: {"nonsense"},
    "object": lambda _: object(),
    "class": lambda _: Thing,
    "function": lambda _: lambda *_, **__: None,
    "tensor": lambda _: torch.zeros(2, 2),
    "nan tensor": lambda _: torch.tensor(math.nan),
    "array": lambda _: np.zeros((2, 3)),
    "module": lambda _: nn.Identity(),
    "path": lambda folder: folder / "missing" / "file",
    "iterator": lambda _: iter(()),
    "Ellipsis": lambda _: ...,
    "rude": lambda _: Rude(),
    "half a character": lambda _: "\ud800",
    "decimal": lambda _: decimal.Decimal("0.5"),
    "generator of text": lambda _: (letter for letter in "ab"),
    "numpy bool": lambda _: np.bool_(1),
    "very long text": lambda _: "x" * 100_000,
}


def _with_nan(module):
    module.weight.data.fill_(math.nan)
    return module


def _returning(value):
    module = nn.Linear(3, 2)
    module.forward = lambda *_: value
    return module


def _meta():
    with torch.device("meta"):
        return nn.Linear(3, 2)


def _file(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


def _folder(folder, name="empty"):
    path = folder / name
    path.mkdir(exist_ok=True)
    return path


def _breaking_off():
    yield torch.rand(4, 3), torch.tensor([0, 1, 0, 1])
    raise ZeroDivisionError("a function of the user's failed")


def _link(folder, target):
    path = folder / "link"
    path.symlink_to(target)
    return path


def _other_optimizer(kind=torch.optim.Adam):
    return kind(nn.Linear(2, 2).parameters(), lr=0.1)


def _other_groups():
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 2))
    return dp.find_groups(model, torch.rand(2, 5))


def _other_plan():
    return dp.surgery.plan_removal(_other_groups(), keep={"0": torch.arange(7) < 2})


def _unfinished(folder):
    path = _folder(folder, "unfinished")
    (path / "recipe.json").write_text("{}")
    return path


OF_KIND: dict[str, dict[str, Make]] = {
    "Module": {
        "no layers": lambda _: nn.Sequential(),
        "raising": lambda _: Raising(),
        "branching": lambda _: Counting(),
        "on meta": lambda _: _meta(),
        "lazy": lambda _: nn.LazyLinear(2),
        "parallel": lambda _: nn.DataParallel(nn.Linear(3, 2)),
        "other inputs": lambda _: nn.Linear(9, 2),
        "complex": lambda _: nn.Linear(3, 2, dtype=torch.complex64),
        "list": lambda _: [nn.Linear(3, 2)],
        "state": lambda _: nn.Linear(3, 2).state_dict(),
        "only activation": lambda _: nn.ReLU(),
        "int model": lambda _: nn.Embedding(3, 2),
        "rude": lambda _: RudeModule(3, 2),
        "half": lambda _: nn.Linear(3, 2, dtype=torch.float16),
        "nan weights": lambda _: _with_nan(nn.Linear(3, 2)),
        "returns text": lambda _: _returning("text"),
        "returns nothing": lambda _: _returning(None),
        "scripted": lambda _: torch.jit.trace(nn.Linear(3, 2), torch.rand(4, 3)),
    },
    "ExampleInputs": {
        "wrong shape": lambda _: torch.rand(4, 9),
        "wrong dtype": lambda _: torch.ones(4, 3, dtype=torch.int64),
        "double": lambda _: torch.rand(4, 3, dtype=torch.float64),
        "complex": lambda _: torch.ones(4, 3, dtype=torch.complex64),
        "meta": lambda _: torch.empty(4, 3, device="meta"),
        "scalar": lambda _: torch.tensor(1.0),
        "no examples": lambda _: torch.rand(0, 3),
        "too many": lambda _: (torch.rand(4, 3), torch.rand(4, 3)),
        "empty tuple": lambda _: (),
        "wrong keyword": lambda _: {"nonsense": torch.rand(4, 3)},
        "list": lambda _: [torch.rand(4, 3)],
        "numbers": lambda _: [[0.1, 0.2, 0.3]],
        "sparse": lambda _: torch.rand(4, 3).to_sparse(),
        "all nan": lambda _: torch.full((4, 3), math.nan),
    },
    "PathLike": {
        "missing": lambda folder: folder / "missing",
        "folder": _folder,
        "empty file": lambda folder: _file(folder, "nothing", b""),
        "foreign file": lambda folder: _file(folder, "letter", b"Dear Sir or Madam"),
        "binary file": lambda folder: _file(folder, "noise", bytes(range(256)) * 9),
        "zip": lambda folder: _file(folder, "zip", b"PK\x03\x04" + bytes(99)),
        "under a file": lambda folder: _file(folder, "letter", b"hello") / "below",
        "nul": lambda _: "a\0b",
        "too long": lambda folder: folder / ("x" * 300),
        "unfinished run": _unfinished,
        "device": lambda _: "/dev/null/x",
        "link to nothing": lambda folder: _link(folder, "nothing"),
        "link to itself": lambda folder: _link(folder, "link"),
        "link to a folder": lambda folder: _link(folder, _folder(folder)),
        "not of this system": lambda _: "/proc/nobody/model",
        "unicode": lambda folder: folder / "モデル ü",
    },
    "Mapping[str": {
        "unknown name": lambda _: {"nonsense": torch.ones(8, dtype=torch.bool)},
        "wrong length": lambda _: {"0": torch.ones(3, dtype=torch.bool)},
        "floats": lambda _: {"0": torch.ones(8)},
        "2-d": lambda _: {"0": torch.ones(8, 1, dtype=torch.bool)},
        "keeps nothing": lambda _: {"0": torch.zeros(8, dtype=torch.bool)},
        "list of bools": lambda _: {"0": [True] * 8},
        "nan scores": lambda _: {"0": torch.full((8,), math.nan)},
        "on meta": lambda _: {"0": torch.ones(8, dtype=torch.bool, device="meta")},
        "number keys": lambda _: {0: torch.ones(8, dtype=torch.bool)},
        "nan value": lambda _: {"0": math.nan},
        "text value": lambda _: {"*": "nonsense"},
        "negative value": lambda _: {"*": -1.0},
    },
    "Sequence": {
        "unknown names": lambda _: ["nonsense"],
        "numbers": lambda _: [1, 2],
        "nested": lambda _: [["nonsense"]],
        "deeper": lambda _: [[["nonsense"]]],
        "nans": lambda _: [math.nan],
        "endless": lambda _: range(-3, 0),
    },
    "Optimizer": {
        "of another model": lambda _: _other_optimizer(),
        "class": lambda _: torch.optim.Adam,
        "scheduler": lambda _: torch.optim.lr_scheduler.StepLR(_other_optimizer(), 1),
        "state": lambda _: _other_optimizer().state_dict(),
    },
    "Groups": {"of another model": lambda _: _other_groups()},
    "Plan": {
        "of another model": lambda _: _other_plan(),
        "json": lambda _: _other_plan().to_json(),
        "unknown tensor": lambda _: dp.surgery.Plan({}, {"nonsense": {0: (1,)}}, {}),
        "negative index": lambda _: dp.surgery.Plan({}, {"0.weight": {0: (-1,)}}, {}),
        "bad dim": lambda _: dp.surgery.Plan({}, {"0.weight": {7: (0,)}}, {}),
        "no index": lambda _: dp.surgery.Plan({}, {"0.weight": {0: ()}}, {}),
    },
    "Budget": {
        "one step": lambda _: dp.Budget(macs=1e-9, steps=1),
        "no steps": lambda _: dp.Budget(macs=1e-9),
        "class": lambda _: dp.Budget,
        "dict": lambda _: {"macs": 0.5},
        "out of reach": lambda _: dp.Budget(parameters=1.5, steps=9),
        "two classes": lambda _: [dp.Budget, dp.Budget],
    },
    "Callable": {
        "failing": lambda _: _fails,
        "returns text": lambda _: lambda *_, **__: "nonsense",
        "returns nan": lambda _: lambda *_, **__: math.nan,
        "no arguments": lambda _: lambda: 1.0,
    },
    "Iterable": {
        "numbers": lambda _: [1, 2, 3],
        "empty generator": lambda _: (_ for _ in ()),
        "triples": lambda _: [(torch.rand(2, 3),) * 3],
        "wrong inputs": lambda _: [(torch.rand(2, 9), torch.tensor([0, 1]))],
        "empty batches": lambda _: [(torch.rand(0, 3), torch.zeros(0).long())],
        "no targets": lambda _: [torch.rand(2, 3)],
        "text pairs": lambda _: [("a", "b")],
        "ends with an error": lambda _: _breaking_off(),
        "only once": lambda _: iter([(torch.rand(4, 3), torch.tensor([0, 1, 0, 1]))]),
        "other classes": lambda _: [(torch.rand(2, 3), torch.tensor([7, -3]))],
        "nan inputs": lambda _: [
            (torch.full((4, 3), math.nan), torch.tensor([0, 1, 0, 1]))
        ],
    },
    "float": {
        "-0.5": lambda _: -0.5,
        "1e308": lambda _: 1e308,
        "number as text": lambda _: "0.1",
        "numpy nan": lambda _: np.float32("nan"),
        "tensor inf": lambda _: torch.tensor(math.inf),
        "least": lambda _: 5e-324,
    },
    "int": {
        "2.0": lambda _: 2.0,
        "number as text": lambda _: "2",
        "numpy -1": lambda _: np.int64(-1),
    },
    "Tensor": {
        "wrong shape": lambda _: torch.zeros(7, 5, 3),
        "ints": lambda _: torch.ones(4, dtype=torch.int64),
        "negative ints": lambda _: torch.full((2, 3), -1),
        "empty": lambda _: torch.zeros(0),
        "meta": lambda _: torch.empty(4, device="meta"),
        "list": lambda _: [1.0, 2.0, 3.0],
        "complex": lambda _: torch.ones(2, 4, dtype=torch.complex64),
        "scalar": lambda _: torch.tensor(0.5),
        "all False": lambda _: torch.zeros(4, dtype=torch.bool),
        "long mask": lambda _: torch.ones(5, dtype=torch.bool),
        "infinite": lambda _: torch.full((4,), math.inf),
        "sparse": lambda _: torch.ones(4).to_sparse(),
    },
    "Literal": {"other case": lambda _: "BOTH"},
    "str": {
        "no file": lambda _: "missing.py:task",
        "no function": lambda _: "diffprune.errors:nonsense",
        "colon": lambda _: ":",
        "device": lambda _: "cuda:99",
        "json": lambda _: "{}",
        "deep json": lambda _: "[" * 5000,
        "dots": lambda _: "../..",
    },
    "Recipe": {
        "other budget": lambda _: _recipe(budget={"nonsense": 1}),
        "bad budget": lambda _: _recipe(budget={"macs": -1}),
        "bad option": lambda _: _recipe(strength=1e-3, pruner={"nonsense": 1}),
        "bad gate": lambda _: _recipe(strength=1e-3, gate={"nonsense": 1}),
        "bad freeze": lambda _: _recipe(strength=1e-3, pruner={"freeze": ["x"]}),
    },
}


def _recipe(**options):
    from diffprune.lab import Recipe

    return Recipe(name="a", epochs=1, batch_size=4, **options)


def bad_values(annotation: str) -> dict[str, Make]:
    """What to try for an argument with such an annotation."""
    found = dict(ANY)
    for word, values in OF_KIND.items():
        if word in annotation:
            found |= {f"{word}: {name}": make for name, make in values.items()}
    return found

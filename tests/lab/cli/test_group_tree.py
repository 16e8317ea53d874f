import pytest
import torch
from rich.console import Console
from torch import nn

from diffprune._graph import find_groups
from diffprune.lab.cli.group_tree import outline, view


@pytest.fixture(scope="module")
def groups():
    block = [nn.Linear(9, 9), nn.ReLU()]
    model = nn.Sequential(nn.Linear(3, 9), *block, *block, nn.Linear(9, 2))
    return find_groups(nn.Sequential(nn.Sequential(model)), torch.rand(1, 3))


@pytest.mark.parametrize("width", [50, 80])
def test_numbers_are_whole_on_narrow_screens(groups, width):
    console = Console(width=width, record=True, file=None)
    console.print(*view("a model", groups))
    text = console.export_text()
    for group in groups:
        assert f"{group.parameters * group.size / groups.parameters():.1%}" in text


def test_groups_with_one_reason_to_be_frozen_share_a_line():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 3), nn.Linear(2, 3)

        def forward(self, x):
            return self.a(x), self.b(x)

    (line,) = [
        line
        for line in view("", find_groups(Tied(), torch.rand(1, 2)))
        if isinstance(line, str) and "6 units" in line
    ]
    assert line == "frozen: a, b (6 units)"


@pytest.mark.parametrize(
    ("names", "lines"),
    [
        ([], []),
        (["a"], ["a"]),
        (["a.b.c"], ["a.b.c"]),
        (["a.b", "a.c"], ["a", "├─ b", "└─ c"]),
        (["a", "a.b"], ["a", "└─ b"]),
        (
            ["x.0.p", "x.0.q", "x.1.p", "y"],
            ["x", "├─ 0", "│  ├─ p", "│  └─ q", "└─ 1.p", "y"],
        ),
    ],
)
def test_what_names_have_in_common_is_said_once(names, lines):
    assert [line for line, _ in outline(names)] == lines


def test_every_name_has_its_line():
    names = ["x.0.p", "x.0.q", "x.0", "y"]
    found = [name for _, name in outline(names) if name is not None]
    assert sorted(found) == sorted(names)

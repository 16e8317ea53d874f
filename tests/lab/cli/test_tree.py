import pytest

from diffprune.lab.cli.tree import outline


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

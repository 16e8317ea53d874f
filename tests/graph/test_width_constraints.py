import pytest
import torch

LITERAL = {
    "view": lambda _, h: h.view(-1, 35),
    "reshape": lambda _, h: h.reshape(h.shape[0], 7, 5).flatten(1),
    "split": lambda _, h: torch.cat(h.split([3, 32], 1)[::-1], 1),
    "unflatten": lambda _, h: h.unflatten(1, (7, 5)).transpose(1, 2).flatten(1),
}


@pytest.mark.parametrize("body", LITERAL.values(), ids=LITERAL)
def test_a_literal_width_is_reported_with_its_line(between, reason, body):
    model = between(lambda m, h: m.last(body(m, h)), width=35, read=35)
    text = reason(model)
    assert "the code fixes its width: `aten." in text
    assert "conftest.py:" in text
    assert "self.body(self, self.first(x).relu())" in text
    assert "Write -1, or read the width from a shape or an attribute." in text


def test_a_literal_slice_freezes_what_it_keeps(between, x):
    from diffprune import find_groups

    model = between(lambda m, h: m.last(h[:, :16]), width=35, read=16)
    frozen = {axis.size: str(axis.reason) for axis in find_groups(model, x).frozen}
    assert "the code fixes its width: `aten.slice`" in frozen[16]


FOLLOWED = {
    "-1": lambda _, h: h.view(h.shape[0], -1),
    "shape": lambda _, h: h.reshape(h.shape[0], h.shape[1]),
    "attribute": lambda m, h: h.view(-1, m.width),
    "product": lambda _, h: h.reshape(h.shape[0] * h.shape[1]).view(len(h), -1),
}


@pytest.mark.parametrize("body", FOLLOWED.values(), ids=FOLLOWED)
def test_a_width_that_follows_is_prunable(between, sizes, body):
    assert sizes(between(lambda m, h: m.last(body(m, h)))) == {"first": 8}


def test_an_attribute_divides_an_axis_and_both_factors_follow(between, sizes):
    def body(module, h):
        parts = h.view(h.shape[0], module.part, -1)
        return module.last(parts.relu().flatten(1))

    assert sizes(between(body, width=15, read=15)) == {"first:0": 3, "first:1": 5}


def test_a_formula_that_would_not_follow_is_reported(between, reason):
    text = reason(between(lambda m, h: m.last(h.view(-1, m.part + 5))))
    assert "computes its width as (part + 5), which would not follow a cut" in text


def test_an_attribute_for_two_axes_ties_them(between, x):
    from diffprune import find_groups

    def body(module, h):
        other = torch.zeros(2, module.width, dtype=h.dtype)
        return module.last(h.view(-1, module.width) + other)

    groups = find_groups(between(body), x)
    assert [str(attribute) for attribute in groups.attributes] == ["width"]

"""What torch is told for a trace stops when the trace does, and questions stop none."""

import gc

import pytest
import torch
from torch import nn
from torch.distributions import Distribution, Normal
from torch.nn import functional as F

import diffprune as dp
from diffprune._graph.export_settings import answered_questions, lean_export
from diffprune.errors import TraceError


class Decoding(nn.Module):
    """A decoder that is given a causal mask, as torch's tutorials do it."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 12, batch_first=True)
        self.body = nn.TransformerDecoder(layer, 1)

    def forward(self, x):
        causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.body(x, x, tgt_mask=causal)


class Encoding(nn.Module):
    """An encoder with a mask of which nothing is said."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x):
        return self.body(x, mask=torch.ones(x.shape[1], x.shape[1]).tril().log())


class Drawing(nn.Module):
    """A variational autoencoder; the distribution looks at its parameters."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 12), nn.Linear(6, 8)

    def forward(self, x):
        mean, width = self.up(x).chunk(2, dim=-1)
        codes = Normal(mean, F.softplus(width))
        return self.down(codes.rsample() if self.training else codes.mean)


@pytest.mark.parametrize("kind", [Decoding, Encoding, Drawing])
def test_a_layer_that_asks_is_traced_cut_and_exported(kind):
    model, x = kind().eval(), torch.rand(2, 5, 8)
    groups = dp.find_groups(model, x)
    keep = {group.name: torch.arange(group.size) > 0 for group in groups}
    small = dp.remove(model, x, keep=keep)
    program = dp.to_exported_program(small, x)
    torch.testing.assert_close(program.module()(x), small(x))


def test_a_mask_that_is_not_causal_is_read():
    x = torch.rand(2, 3, 8)
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    mask = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]]).bool()
    inputs = {"src": x, "mask": mask}
    program = dp.to_exported_program(encoder, inputs, batch_dim=None)
    torch.testing.assert_close(program.module()(**inputs), encoder(**inputs))


def test_torch_asks_again_afterwards_even_after_an_error(monkeypatch):
    # As it is until torch compiles something: then it asks no more.
    monkeypatch.setattr(Distribution, "_validate_args", True)
    with pytest.raises(ZeroDivisionError), answered_questions():
        _ = 1 / 0
    with pytest.raises(ValueError, match="Expected parameter scale"):
        Normal(0.0, -1.0)


class Asking(nn.Linear):
    """Its own forward asks, in a function of its own."""

    def forward(self, x):
        return super().forward(x if self.is_bright(x) else -x)

    def is_bright(self, x):
        return x.mean() > 0.5  # a line to be named


class Checking(nn.Linear):
    """It does what the advice says."""

    def forward(self, x):
        if not torch.compiler.is_exporting() and x.isnan().any():
            raise ValueError("NaN")
        return super().forward(x)


def test_a_check_can_be_left_out_as_the_advice_says():
    model = nn.Sequential(Checking(3, 5), nn.ReLU(), nn.Linear(5, 2))
    assert dp.find_groups(model, torch.rand(2, 3)).sizes == {"0": 5}
    with pytest.raises(TraceError, match=r"if not torch\.compiler\.is_exporting\(\)"):
        dp.find_groups(Asking(3, 2), torch.rand(2, 3))


def test_the_line_that_asks_is_named():
    with pytest.raises(
        TraceError, match=r"\(test_export_settings.py:\d+: return super\(\).*-x\)\)\n"
    ):
        dp.find_groups(Asking(3, 2), torch.rand(2, 3))


def exported(model, x):
    program = torch.export.export(model, (x,), strict=False)
    return {key for node in program.graph.nodes for key in node.meta}


def test_an_export_of_the_user_notes_what_it_always_does():
    model, x = (
        nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)),
        torch.ones(1, 3),
    )
    before = exported(model, x)
    dp.find_groups(model, x)
    assert exported(model, x) == before
    assert {"stack_trace", "tensor_meta"} <= before


def test_what_is_left_out_is_left_out():
    with lean_export():
        left = exported(nn.Linear(3, 5), torch.ones(1, 3))
    assert "stack_trace" not in left
    assert "val" in left


@pytest.mark.parametrize("was_collecting", [True, False])
def test_garbage_is_looked_for_as_before_even_after_an_error(was_collecting):
    if not was_collecting:
        gc.disable()
    try:
        with pytest.raises(ValueError, match="no"), lean_export():
            raise ValueError("no")
        assert gc.isenabled() == was_collecting
    finally:
        gc.enable()

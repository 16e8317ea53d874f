import pytest
import torch

# Each joins or rearranges `h[n, 8]`; what was one group must stay one, exactly.
BODIES = {
    "meshgrid": (
        lambda h: torch.meshgrid(torch.ones(2).to(h), h[0], indexing="ij")[1],
        8,
    ),
    "meshgrid of columns": (
        lambda h: torch.meshgrid(h[0], torch.ones(2).to(h), indexing="xy")[0],
        8,
    ),
    "hstack": (lambda h: torch.hstack((h, h.tanh())), 16),
    "vstack": (lambda h: torch.vstack((h, h.tanh())), 8),
    "dstack": (lambda h: torch.dstack((h, h.tanh())).flatten(1), 16),
    "column_stack": (lambda h: torch.column_stack((h, h.tanh())), 16),
    "movedim": (lambda h: h.unflatten(1, (-1, 1)).movedim(1, 2).flatten(1), 8),
    "T": (lambda h: h.T.contiguous().T, 8),
    "mT": (lambda h: h.mT.tanh().mT, 8),
    "view_as": (lambda h: h.view_as(h.tanh()), 8),
    "expand_as": (lambda h: h[:1].expand_as(h), 8),
    "repeat": (lambda h: h.repeat(1, 2), 16),
    "tile": (lambda h: h.tile(2), 16),
    "repeat_interleave": (lambda h: h.repeat_interleave(2, 1), 16),
    "squeeze": (lambda h: h[:, None].squeeze(), 8),
    "channel_shuffle": (
        lambda h: torch.channel_shuffle(h[:, :, None, None], h.shape[1] // 1).flatten(
            1
        ),
        8,
    ),
}


@pytest.mark.parametrize(("body", "read"), BODIES.values(), ids=BODIES)
def test_units_are_followed(between, sizes, body, read):
    assert sizes(between(lambda m, h: m.last(body(h)), read=read)) == {"first": 8}


def test_vectors_are_stacked_side_by_side(between, sizes):
    def body(_, h):
        rows = h.unbind(0)
        return torch.hstack(rows), torch.vstack(rows).sum(1), torch.dstack(rows).sum(1)

    assert sizes(between(lambda m, h: body(m, h)[1])) == {"first": 8}
    assert sizes(between(lambda m, h: body(m, h)[2])) == {"first": 8}
    assert sizes(between(lambda m, h: body(m, h)[0].sum(0, keepdim=True))) == {
        "first": 8
    }


def test_units_that_others_share_are_repeated_up_to_their_number(between, sizes):
    def body(m, h):
        shared = h.unflatten(1, (-1, 2)).sum(2)
        times = h.shape[1] // shared.shape[1]
        return m.last(h * shared.repeat_interleave(times, 1, output_size=h.shape[1]))

    assert sizes(between(body)) == {"first": 4}


def test_a_reshape_freezes_no_more_than_what_it_divides_anew(between, sizes):
    def body(m, h):
        table = h.unsqueeze(-1).unsqueeze(-1) * torch.ones(3, 5).to(h)
        shifted = table.reshape(2, h.shape[1], 5, 3)[:, :, 1:]  # as relative positions
        return m.last(shifted.sum((2, 3)))

    assert sizes(between(body)) == {"first": 8}


def test_pixel_shuffle_keeps_whole_channels(between, sizes):
    def body(module, h):
        image = h[:, :, None, None]
        return module.last(torch.pixel_shuffle(image, 2).flatten(1))

    assert sizes(between(body)) == {"first": 2}

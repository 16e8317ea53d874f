"""Inputs of our own that a model accepts, drawn like the example's.

Whether a removal is exact must not depend on the example: zeros, or a single row, say
nothing. What is drawn stays as close to the example as the model insists on.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from diffprune._core.leaves import leaves_of
from diffprune._graph import ExampleInputs

Draw = Callable[[Tensor, torch.Generator], Tensor]


def drawn(inputs: ExampleInputs, *, seed: int, wide: bool = False) -> Iterator[Any]:
    """Other inputs of the same kind, the freest first; the model may refuse some.

    Args:
        inputs: The example. Tensors in it keep their types, devices and, apart from a
            batch of too few rows, their shapes.
        seed: Equal seeds give equal inputs.
        wide: Whether numbers may leave the range of the example's first.
    """
    for spread in (3.0, 1.0) if wide else (1.0,):
        yield _each(inputs, seed, lambda x, g, s=spread: _number(x, g, s), _picked)
    # Numbers that look like a mask or like places stay what they are.
    yield _each(inputs, seed, lambda x, g: _number(x, g, 1.0), _same)
    yield _each(inputs, seed, _positive, _same)
    yield _each(inputs, seed, _nudged, _same)


def repeated(inputs: ExampleInputs) -> Any:  # noqa: ANN401 - as nested as given
    """The same inputs with every row twice, for what needs more than one.

    Examples:
        >>> repeated((torch.zeros(1, 3), torch.zeros(2)))[0].shape
        torch.Size([2, 3])
    """
    rows = next((len(x) for x in leaves_of(Tensor, inputs) if x.ndim), None)

    def twice(x: Tensor) -> Tensor:
        return torch.cat([x, x]) if x.ndim and len(x) == rows else x

    return pytree.tree_map_only(Tensor, twice, inputs)


def resized(inputs: ExampleInputs, *, rows: bool = True) -> Iterator[Any]:
    """The same inputs with half as many elements along some dimensions, rows last.

    Tensors that are as long in the same dimension change together, and so do all
    dimensions of a length, as those of a sequence and of its mask. The model may refuse
    some: a number of channels, or an image that a layer has to see whole. Without
    `rows` all keep theirs, which code may have written down: `h.view(2, -1)`.

    Examples:
        >>> [tuple(other.shape) for other in resized(torch.zeros(4, 3, 6, 6))]
        [(4, 1, 6, 6), (4, 3, 3, 6), (4, 3, 3, 3), (4, 3, 6, 3), (2, 3, 6, 6)]
    """
    leaves, spec = pytree.tree_flatten(inputs)
    shapes = {at: x.shape for at, x in enumerate(leaves) if isinstance(x, Tensor)}
    everywhere = [(at, dim) for at, s in shapes.items() for dim in range(len(s))]
    everywhere = [(at, dim) for at, dim in everywhere if rows or dim]
    ways = dict[frozenset[tuple[int, int]], None]()
    for at, dim in sorted(everywhere, key=lambda place: not place[1]):
        alike = [(a, d) for a, d in everywhere if shapes[a][d] == shapes[at][dim]]
        ways[frozenset((a, d) for a, d in alike if d == dim)] = None
        if dim:
            ways[frozenset((a, d) for a, d in alike if d)] = None
    for way in ways:
        dims = [[d for a, d in way if a == at] for at in range(len(leaves))]
        yield pytree.tree_unflatten(map(_shorter, leaves, dims), spec)


def _shorter(leaf: Any, dims: Sequence[int]) -> Any:  # noqa: ANN401 - only tensors have dims
    """Half of a tensor along each of these dimensions; twice it where it has one."""
    for dim in dims:
        half = leaf.shape[dim] // 2
        leaf = leaf.narrow(dim, 0, half) if half else torch.cat([leaf, leaf], dim)
    return leaf


def _each(inputs: ExampleInputs, seed: int, numbers: Draw, others: Draw) -> Any:  # noqa: ANN401
    draw = torch.Generator().manual_seed(seed)

    def one(x: Tensor) -> Tensor:
        like = _filled(x.detach()).cpu()
        is_number = like.is_floating_point() or like.is_complex()
        made = (numbers if is_number else others)(like, draw)
        return made.to(x).requires_grad_(x.requires_grad)

    return pytree.tree_map_only(Tensor, one, inputs)


def _filled(example: Tensor) -> Tensor:
    """The example, with two rows where it has none."""
    is_empty = example.ndim > 0 and len(example) == 0
    return example.new_zeros(2, *example.shape[1:]) if is_empty else example


def _uniform(like: Tensor, draw: torch.Generator) -> Tensor:
    if like.is_complex():
        parts = torch.rand((*like.shape, 2), generator=draw, dtype=torch.float64)
        return torch.view_as_complex(parts)
    return torch.rand(like.shape, generator=draw, dtype=torch.float64)


def _number(like: Tensor, draw: torch.Generator, spread: float) -> Tensor:
    """Numbers between the least and the largest of the example's, or wider.

    Infinite ones, as masks have them, stay where they are. Numbers that are all of one
    sign keep it.
    """
    if like.is_complex():
        return like + _uniform(like, draw)
    finite = like[like.isfinite()].double()
    low, high = (
        (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    )
    if low == high:
        low, high = sorted((low / 2, low * 1.5)) if low else (-1.0, 1.0)
    low, high = (
        bound * spread if low < 0 or bound == high else bound for bound in (low, high)
    )
    made = low + (high - low) * _uniform(like, draw)
    return torch.where(like.isfinite(), made, like.double())


def _positive(like: Tensor, draw: torch.Generator) -> Tensor:
    return _uniform(like, draw) + 0.1


def _nudged(like: Tensor, draw: torch.Generator) -> Tensor:
    return like * (1 + 0.1 * _uniform(like, draw))


def _picked(like: Tensor, draw: torch.Generator) -> Tensor:
    """Whole numbers or truths that the example has, in other places."""
    if like.numel() < 2:
        return like
    places = torch.randint(like.numel(), like.shape, generator=draw)
    return like.flatten()[places]


def _same(like: Tensor, draw: torch.Generator) -> Tensor:
    del draw
    return like

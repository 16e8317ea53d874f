"""A network as a picture: layers as blocks, branches as lanes beside each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Final

from torch import fx, nn

from diffprune._graph import ExampleInputs, Trace, trace

_JOINS: Final = {
    "add": "+",
    "cat": "concat",
    "mul": "\N{MULTIPLICATION SIGN}",
    "scaled_dot_product_attention": "attention",
}
"""What a place is called where branches meet; other ops are called what they are."""
_CONVOLUTIONS: Final = ("conv",)
_LAYERS: Final = (
    *_CONVOLUTIONS,
    "linear",
    "addmm",
    "mm",
    "bmm",
    "matmul",
    "einsum",
    "embedding",
    "lstm",
    "gru",
    "rnn",
)
"""How the names of ops begin that make new units by weights of their own."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A layer, or a place where branches meet.

    Attributes:
        name: The layer's name in the model, or what happens where branches meet.
        units: That it gives; None where branches meet.
        sources: The blocks it reads, by number.
        row: How many blocks are above it at least.
        lane: Which branch it is in; the longest one is 0.
    """

    name: str
    units: int | None
    sources: tuple[int, ...]
    row: int = 0
    lane: int = 0


def diagram(model: nn.Module, inputs: ExampleInputs) -> tuple[Block, ...]:
    """Find the blocks of a model in the order in which they run, each with its place.

    Args:
        model: Anything that can be traced.
        inputs: One example.

    Returns:
        Blocks; the first is the input, the last the output.

    Examples:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> [(b.name, b.units) for b in diagram(model, torch.rand(1, 2))]
        [('input', None), ('0', 3), ('2', 1), ('output', None)]
    """
    usual, *_ = trace(model, inputs)
    return _placed(_Contraction(usual).blocks)


def units_by_layer(blocks: Sequence[Block]) -> dict[tuple[str, int], int]:
    """Units of every layer by its name and by how often it has run before.

    Examples:
        >>> units_by_layer([Block(name="shared", units=2, sources=())] * 2)
        {('shared', 0): 2, ('shared', 1): 2}
    """
    runs: dict[str, Iterator[int]] = {}
    return {
        (block.name, next(runs.setdefault(block.name, count()))): block.units
        for block in blocks
        if block.units is not None
    }


@dataclass(frozen=True)
class _Origin:
    """Where a value comes from: blocks, or weights of layers alone."""

    blocks: tuple[int, ...] = ()
    layers: tuple[str, ...] = ()


@dataclass
class _Contraction:
    """A trace in which only layers and joins are left; all else is passed through."""

    traced: Trace
    blocks: list[Block] = field(default_factory=list[Block])
    origins: dict[fx.Node, _Origin] = field(default_factory=dict[fx.Node, _Origin])

    def __post_init__(self) -> None:
        self.blocks.append(Block(name="input", units=None, sources=()))
        for node in self.traced.graph.nodes:
            self.origins[node] = self._origin(node)

    def _origin(self, node: fx.Node) -> _Origin:
        if node.op == "placeholder":
            return self._given(node)
        read = [self.origins[source] for source in node.all_input_nodes]
        blocks = tuple(dict.fromkeys(b for origin in read for b in origin.blocks))
        layers = tuple(
            name for origin in read if not origin.blocks for name in origin.layers
        )
        if node.op == "output":
            return self._add("output", None, blocks)
        if not blocks:
            return _Origin(layers=layers)
        op = _op_name(node)
        if layers and op.startswith(_LAYERS):
            return self._add(layers[0], _num_units(node), blocks)
        if len(blocks) > 1:
            return self._add(_JOINS.get(op, op), None, blocks)
        return _Origin(blocks)

    def _given(self, node: fx.Node) -> _Origin:
        tensor = self.traced.tensor_names.get(node.name)
        if tensor is None:
            return _Origin(blocks=(0,))
        owner = tensor.rpartition(".")[0].removesuffix(".parametrizations.weight")
        return _Origin(layers=(owner or tensor,))

    def _add(self, name: str, units: int | None, sources: tuple[int, ...]) -> _Origin:
        self.blocks.append(Block(name=name, units=units, sources=sources))
        return _Origin(blocks=(len(self.blocks) - 1,))


def _op_name(node: fx.Node) -> str:
    return str(getattr(node.target, "overloadpacket", node.target)).rpartition(".")[2]


def _num_units(node: fx.Node) -> int:
    value = node.meta["val"]
    shape = (value[0] if isinstance(value, tuple | list) else value).shape
    is_spatial = _op_name(node).startswith(_CONVOLUTIONS)
    return int(shape[1 if is_spatial else -1])


def _placed(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Give every block a row below what it reads, and a lane that is free there."""
    rows: list[int] = []
    for block in blocks:
        rows.append(1 + max((rows[s] for s in block.sources), default=-1))
    lanes = _lanes(blocks, rows)
    return tuple(
        replace(block, row=rows[number], lane=lanes[number])
        for number, block in enumerate(blocks)
    )


def _lanes(blocks: Sequence[Block], rows: Sequence[int]) -> Mapping[int, int]:
    lanes = dict.fromkeys(_longest_path(blocks, rows), 0)
    taken = {(0, rows[number]) for number in lanes}
    for number, block in enumerate(blocks):
        if number in lanes:
            continue
        beside = [lanes[s] for s in block.sources if lanes[s]]
        free = (
            lane
            for lane in chain(beside, count(1))
            if (lane, rows[number]) not in taken
        )
        lanes[number] = next(free)
        taken.add((lanes[number], rows[number]))
    return lanes


def _longest_path(blocks: Sequence[Block], rows: Sequence[int]) -> list[int]:
    path = [len(blocks) - 1]
    while sources := blocks[path[-1]].sources:
        path.append(max(sources, key=lambda source: rows[source]))
    return path

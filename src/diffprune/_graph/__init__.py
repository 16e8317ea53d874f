"""Which slices of a model's tensors can be removed together."""

from diffprune._graph.find import find_groups as find_groups
from diffprune._graph.groups import (
    FrozenAxis as FrozenAxis,
    Groups as Groups,
    PruneGroup as PruneGroup,
    TensorAxis as TensorAxis,
)

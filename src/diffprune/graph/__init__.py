"""Which slices of a model's tensors can be removed together."""

from diffprune.graph.find import find_groups as find_groups
from diffprune.graph.group import (
    PruneGroup as PruneGroup,
    TensorAxis as TensorAxis,
)
from diffprune.graph.groups import Groups as Groups

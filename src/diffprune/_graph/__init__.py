"""Which slices of a model's tensors can be removed together."""

from diffprune._graph.find import find_groups as find_groups
from diffprune._graph.group import PruneGroup as PruneGroup, TensorAxis as TensorAxis
from diffprune._graph.groups import Groups as Groups

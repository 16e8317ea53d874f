"""What a zoo entry is: a model, its inputs and what is certain about its groups."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .values import randomise_

Inputs = Tensor | tuple | dict


@dataclass(frozen=True, kw_only=True)
class Expect:
    """What group discovery must find, where that is beyond doubt.

    Args:
        min_prunable_groups: At least so many groups can be cut.
        frozen: No group can be cut.
    """

    min_prunable_groups: int = 0
    frozen: bool = False


@dataclass(frozen=True)
class Entry:
    """Calling it builds the model, in eval mode and float64, and its example inputs.

    Args:
        build: Makes the model.
        inputs: Makes the example inputs: a tuple (positional) or a dict (keywords).
        expect: What is certain about the groups.
        prepare: Changes the random values in place, for models that are about values.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    expect: Expect = field(default=Expect(), kw_only=True)
    prepare: Callable[[nn.Module], None] = field(default=nn.Module.eval, kw_only=True)

    def __call__(self) -> tuple[nn.Module, Inputs]:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model = randomise_(self.build().double().eval())
            self.prepare(model)
            return model, self.inputs()


FROZEN = Expect(frozen=True)


def at_least(groups: int) -> Expect:
    return Expect(min_prunable_groups=groups)


def floats(*shape: int) -> Callable[[], tuple[Tensor]]:
    """One normally distributed input."""
    return lambda: (torch.randn(shape, dtype=torch.float64),)


def tokens(vocabulary: int, *shape: int) -> Callable[[], tuple[Tensor]]:
    """One input of token ids."""
    return lambda: (torch.randint(vocabulary, shape),)


def call(model: nn.Module, inputs: Inputs) -> object:
    """Call the model with one tensor, positional or keyword inputs."""
    match inputs:
        case dict():
            return model(**inputs)
        case tuple():
            return model(*inputs)
        case _:
            return model(inputs)


def replayed(groups, model: nn.Module, inputs: Inputs) -> list[Tensor] | None:
    """What the calls that were traced for these groups return, flattened.

    None if a constant was lifted out of them, which a trace does not keep.
    """
    trace = groups.solution.traces[0]
    tensors = dict(model.named_parameters(remove_duplicate=False))
    tensors |= dict(model.named_buffers(remove_duplicate=False))
    names = [node.name for node in trace.graph.nodes if node.op == "placeholder"]
    free = [name for name in names if name not in trace.tensor_names]
    leaves = pytree.tree_leaves(inputs)
    if len(free) != len(leaves):
        return None
    given = dict(zip(free, leaves, strict=True))
    known = {name: tensors[path] for name, path in trace.tensor_names.items()}
    with torch.no_grad():
        returned = trace.owner(*((given | known)[name] for name in names))
    return pytree.tree_leaves(returned)

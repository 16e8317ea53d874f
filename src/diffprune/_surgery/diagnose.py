"""Say where, and why, a smaller model computes something else.

Two models and inputs go in; the path of the first module that returns something else
comes out, or a number in the code of the model that changed with a width.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from diffprune._core.types import Bool
from diffprune._graph import ExampleInputs, Groups, mask as axis_mask, trace, where
from diffprune._surgery.compare import compare, outputs, tensors
from diffprune.errors import DiffpruneError

Visit: TypeAlias = tuple[str, int]
"""A module's path, and how often it had been called before."""

Masks: TypeAlias = tuple[Bool[Tensor, " n"], ...]
Layout: TypeAlias = Mapping[Visit, tuple[Masks, ...]]
"""Which elements of what a module returns are kept: per tensor, per dimension."""


@dataclass
class Record:
    """What every module returned, in the order they finished; which ones did not."""

    returned: dict[Visit, list[Tensor]] = field(
        default_factory=dict[Visit, list[Tensor]]
    )
    running: list[str] = field(default_factory=list[str])


def record(
    model: nn.Module, inputs: ExampleInputs, *, training: bool = False
) -> Record:
    """Run the model and write down what each of its modules returns."""
    found = Record()
    with ExitStack() as hooks, suppress(Exception):
        for handle in _handles(model, found):
            hooks.enter_context(handle)
        outputs(model, inputs, training=training)
    return found


def layout(groups: Groups, keep: Mapping[str, Bool[Tensor, " units"]]) -> Layout:
    """What is kept of every module's outputs, as far as the trace has seen them."""
    masks = {groups[name].atom: kept for name, kept in keep.items()}
    found: dict[Visit, tuple[Masks, ...]] = {}
    for step in groups.solution.steps:
        axes = map(groups.solution.axes, step.outputs)
        kept = tuple(tuple(axis_mask(axis, masks) for axis in each) for each in axes)
        for visit in _visits(step.node.meta):
            found[visit] = kept
    return found


def first_disagreement(
    expected: Record, actual: Record, kept: Layout, tolerance: float
) -> str | None:
    """Path of the first module to return something else, the kept elements compared."""
    for visit, returned in expected.returned.items():
        if visit in kept or visit not in actual.returned:
            selected = _select(returned, kept.get(visit, ()))
            found = actual.returned.get(visit, [])
            if compare(selected, found).gap.relative > tolerance:
                return visit[0]
    return None


def _select(returned: list[Tensor], kept: tuple[Masks, ...]) -> list[Tensor]:
    """The kept elements; all of them where the trace saw other shapes."""
    if [tuple(map(len, masks)) for masks in kept] != [tuple(t.shape) for t in returned]:
        return returned
    return [_crop(tensor, masks) for tensor, masks in zip(returned, kept, strict=True)]


def _crop(tensor: Tensor, masks: Masks) -> Tensor:
    for dim, mask in enumerate(masks):
        index = mask.nonzero().flatten().to(tensor.device)
        tensor = tensor.index_select(dim, index)
    return tensor


def _visits(meta: Mapping[str, Any]) -> Iterator[Visit]:
    """The calls an op happened in; torch writes the third one of `act` as `act@2`."""
    for key, (path, _) in (meta.get("nn_module_stack") or {}).items():
        yield path, int(key.rpartition("@")[2]) if "@" in key else 0


def _handles(model: nn.Module, found: Record) -> Iterator[RemovableHandle]:
    for path, module in model.named_modules():
        enter, leave = _notes(path, found)
        yield module.register_forward_pre_hook(enter)
        yield module.register_forward_hook(leave)


def _notes(path: str, found: Record) -> tuple[Any, Any]:
    calls = 0

    def enter(*_: object) -> None:
        found.running.append(path)

    def leave(_module: object, _args: object, returned: object) -> None:
        nonlocal calls
        found.running.pop()
        found.returned[path, calls] = [t.clone() for t in tensors(returned)]
        calls += 1

    return enter, leave


def changed_number(
    one: nn.Module, other: nn.Module, inputs: ExampleInputs
) -> str | None:
    """Say which op, or which number that an op is given, is another in both models.

    Python does not let an integer see that a float is divided by it: `2.0 / x.shape[1]`
    escapes the analysis, and so does `range(x.shape[1])`. When a removal fails because
    of it, two traces show it.
    """
    with suppress(DiffpruneError):
        for traces in zip(*(trace(m, inputs) for m in (one, other)), strict=False):
            calls = [_calls(found.graph) for found in traces]
            found = next(filter(None, starmap(_difference, zip(*calls))), None)  # noqa: B905 - one may call more
            if found is not None:
                return found
    return None


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _difference(one: fx.Node, other: fx.Node) -> str | None:
    if one.target != other.target:
        return f"{where(one)} becomes `{where(other).op}`"
    for before, after in zip(_numbers(one), _numbers(other), strict=False):
        if before != after:
            return f"{before:.4g} becomes {after:.4g} in {where(one)}"
    return None


def _numbers(node: fx.Node) -> list[float]:
    """Numbers that enter the arithmetic of an op; other integers may be widths."""
    leaves = pytree.tree_leaves((node.args, node.kwargs))
    is_pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    kinds = (float, int) if is_pointwise else float
    return [leaf for leaf in leaves if isinstance(leaf, kinds)]

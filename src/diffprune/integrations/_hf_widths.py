"""Which numbers of a config are which groups of a model, so that the config can follow.

Nothing is known about architectures: a model is built, without weights, from a config
with another number in it. If it has the shapes that a removal would leave, and layers
that report the same sizes, then that number is how the config says it.
"""

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers import PreTrainedModel

from diffprune._graph import ExampleInputs, Groups, PruneGroup, find_groups
from diffprune._surgery.plan import Plan, plan_removal
from diffprune.errors import ArgumentError

Fields: TypeAlias = tuple[str, ...]
OPTIONS = ("freeze", "heads", "rules")


@dataclass(frozen=True)
class Class:
    """Groups of all layers that one or two numbers of the config stand for.

    Attributes:
        fields: The numbers.
        groups: Names of the groups.
        size: Units of each.
    """

    fields: Fields
    groups: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class EqualWidths:
    """What can be removed from a model so that its config can say it.

    Attributes:
        classes: By what the config has numbers for.
        others: Groups that no number stands for, as names of layers.
        values: The numbers, as they were at first.
    """

    classes: tuple[Class, ...]
    others: tuple[str, ...]
    values: Mapping[str, int]

    @classmethod
    def of(
        cls, model: PreTrainedModel, inputs: ExampleInputs, options: Mapping[str, Any]
    ) -> "EqualWidths":
        """Find out, by building models without weights.

        Args:
            model: The model, whole and plain.
            inputs: What it is called with.
            options: Options of `Pruner`.

        Raises:
            ArgumentError: If the config has no number for anything.
        """
        given = {name: options[name] for name in OPTIONS if name in options}
        groups = find_groups(model, inputs, **given)
        values = {n: v for n, v in vars(model.config).items() if _is_width(v)}
        found = _classes(model, groups, values)
        if not found:
            raise ArgumentError(
                f"the config of a {type(model).__name__} has no number for anything "
                "that can be removed: leave `equal_widths` out, and save with "
                "`dp.save_pruned`."
            )
        known = {name for one in found for name in one.groups}
        others = tuple(g.name for g in groups if g.name not in known)
        return cls(tuple(found), others, values)

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of `Pruner`: what the config has numbers for is tied, the rest stays.

        Raises:
            ArgumentError: If groups are tied in another way, too.
        """
        if options.get("tie"):
            raise ArgumentError("`equal_widths` ties groups itself: leave `tie=` out.")
        frozen = [*options.get("freeze", ()), *self.others]
        tied = [one.groups for one in self.classes]
        return {**options, "freeze": frozen, "tie": tied}

    def check(self, gates: Collection[str]) -> None:
        """Refuse groups that have other names once they are tied.

        Args:
            gates: The names of the gates.

        Raises:
            ArgumentError: If there are any.
        """
        lost = [one for one in self.classes if one.groups[0] not in gates]
        if lost:
            layers = sorted({name.partition(":")[0] for name in lost[0].groups})
            raise ArgumentError(
                f"`equal_widths` cannot tie {list(lost[0].groups)}, which the config "
                f"calls {list(lost[0].fields)}.\nLeave these layers as they are: "
                f"`freeze={layers}`."
            )

    def write_(self, model: PreTrainedModel, sizes: Mapping[str, int]) -> None:
        """Let the config of a small model say how wide it is.

        Args:
            model: The small model; its config is changed.
            sizes: Units that are left, by the name of the group.
        """
        changed = dict(self.values)
        for one in self.classes:
            for field in one.fields:
                left = sizes[one.groups[0]]
                changed[field] = changed[field] * left // one.size
        built = _build(model, {n: v for n, v in changed.items() if v != self.values[n]})
        if built is None or _shapes(built) != _shapes(model):
            warnings.warn(
                "the config cannot say how wide this model is: save it with "
                "`dp.save_pruned`, and load it with `load_pretrained`.",
                stacklevel=2,
            )
            return
        vars(model.config).update(changed)


def _is_width(value: object) -> bool:
    return type(value) is int and value > 1


def _classes(
    model: PreTrainedModel, groups: Groups, values: Mapping[str, int]
) -> list[Class]:
    found, left = list[Class](), list(groups)
    for count in (1, 2):
        for size in dict.fromkeys(group.size for group in left):
            for fields in _candidates(values, size, count):
                same = [group for group in left if group.size == size]
                if one := _class(model, groups, same, fields, values):
                    found.append(one)
                    left = [group for group in left if group.name not in one.groups]
    return found


def _candidates(values: Mapping[str, int], size: int, count: int) -> Iterator[Fields]:
    """Sets of numbers that could be so many units, or so many times some."""
    return combinations((n for n, value in values.items() if value % size == 0), count)


def _class(
    model: PreTrainedModel,
    groups: Groups,
    same: Sequence[PruneGroup],
    fields: Fields,
    values: Mapping[str, int],
) -> Class | None:
    """The groups of one size that these numbers stand for, if these are all of it."""
    if not same:
        return None
    size = same[0].size
    built = _build(model, {name: values[name] // size * (size - 1) for name in fields})
    if built is None:
        return None
    fewer = torch.arange(size) > 0
    matched = [
        group.name
        for group in same
        if _agrees(model, built, plan_removal(groups, keep={group.name: fewer}))
    ]
    if not matched:
        return None
    whole = plan_removal(groups, keep=dict.fromkeys(matched, fewer))
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    for name, dims in whole.tensors.items():
        for dim, kept in dims.items():
            shapes[name][dim] = len(kept)
    is_all = shapes == {n: list(shape) for n, shape in _shapes(built).items()}
    each = {name: values[name] // size for name in fields}
    is_free = all(
        _config(model, {name: unit * left for name, unit in each.items()}) is not None
        for left in range(1, size)
    )
    return Class(fields, tuple(matched), size) if is_all and is_free else None


def _agrees(model: nn.Module, built: nn.Module, plan: Plan) -> bool:
    """Whether a model was built as a removal would leave it."""
    shapes = _shapes(built)
    if shapes.keys() != model.state_dict().keys() or _rest(model) != _rest(built):
        return False
    if any(name not in shapes for name in plan.tensors):
        return False
    modules = dict(built.named_modules(remove_duplicate=False))
    sizes = ((name.rpartition("."), value) for name, value in plan.attributes.items())
    return all(
        shapes[name][dim] == len(kept)
        for name, dims in plan.tensors.items()
        for dim, kept in dims.items()
    ) and all(vars(modules[path]).get(name) == n for (path, _, name), n in sizes)


def _rest(model: nn.Module) -> list[object]:
    """What a config decides beside weights: scales, and buffers that are not saved.

    A removal leaves them alone, so a number that changes them is another one.
    """
    saved, modules = model.state_dict().keys(), model.modules()
    floats = [
        v for module in modules for v in vars(module).values() if type(v) is float
    ]
    unsaved = (t for name, t in model.named_buffers() if name not in saved)
    return [floats, [tensor.shape for tensor in unsaved]]


def _config(model: PreTrainedModel, changes: Mapping[str, int]) -> Any:  # noqa: ANN401 - of any architecture
    """The config with other numbers in it; None if it cannot have them."""
    config = copy.deepcopy(model.config)
    try:
        for name, value in changes.items():
            setattr(config, name, value)
        config.validate()  # as `from_pretrained` does
    except Exception:  # noqa: BLE001 - whatever a config thinks of such a number
        return None
    return config


def _build(model: PreTrainedModel, changes: Mapping[str, int]) -> nn.Module | None:
    """The model with other numbers in its config, without weights; None if none can."""
    config = _config(model, changes)
    if config is None:
        return None
    try:
        with torch.device("meta"):
            return type(model)(config)
    except Exception:  # noqa: BLE001 - whatever a model thinks of such a config
        return None


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}

"""Which numbers of a config are which groups of a model, so that the config can follow.

Nothing is known about architectures: a model is built, without weights, from a config
with another number in it. If it has the shapes that a removal would leave, and layers
that report the same sizes, then that number is how the config says it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers import PreTrainedModel

from diffprune._core.user_warnings import warn
from diffprune._graph import ExampleInputs, Groups, PruneGroup, find_groups
from diffprune._surgery.plan import Plan, plan_removal
from diffprune.errors import ArgumentError
from diffprune.integrations._hf_settings import (
    Setting,
    change_,
    changed,
    for_all_layers,
    for_each_layer,
)

Settings: TypeAlias = tuple[Setting, ...]
OPTIONS = ("freeze", "heads", "rules")


@dataclass(frozen=True)
class Class:
    """Groups that one or two numbers of the config stand for.

    Attributes:
        settings: The numbers.
        groups: Names of the groups.
        size: Units of each.
    """

    settings: Settings
    groups: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class ConfigWidths:
    """What can be removed from a model so that its config can say it.

    Attributes:
        classes: By what the config has numbers for.
        others: Groups that no number stands for, as names of layers.
        values: The numbers, as they were at first.
    """

    classes: tuple[Class, ...]
    others: tuple[str, ...]
    values: Mapping[Setting, int]

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        inputs: ExampleInputs,
        options: Mapping[str, Any],
        *,
        equal: bool,
        per_layer: bool,
    ) -> "ConfigWidths":
        """Find out, by building models without weights.

        Args:
            model: The model, whole and plain.
            inputs: What it is called with.
            options: Options of `Pruner`.
            equal: Whether numbers for all layers count.
            per_layer: Whether numbers for single layers count; they come first.

        Raises:
            ArgumentError: If the config has no number for anything.
        """
        given = {name: options[name] for name in OPTIONS if name in options}
        groups = find_groups(model, inputs, **given)
        each = for_each_layer(model.config) if per_layer else {}
        values = {**each, **(for_all_layers(model.config) if equal else {})}
        found = _classes(model, groups, values)
        if not found:
            raise ArgumentError(_says_nothing(type(model).__name__, equal=equal))
        known = {name for one in found for name in one.groups}
        others = tuple(g.name for g in groups if g.name not in known)
        return cls(tuple(found), others, values)

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of `Pruner`: what the config has numbers for is tied, the rest stays.

        Raises:
            ArgumentError: If groups are tied in another way, too.
        """
        if options.get("tie"):
            raise ArgumentError(
                "`equal_widths` and `per_layer_config` tie groups themselves: leave "
                "`tie=` out."
            )
        frozen = [*options.get("freeze", ()), *self.others]
        tied = [one.groups for one in self.classes if len(one.groups) > 1]
        return {**options, "freeze": frozen, "tie": tied}

    def write_(self, model: PreTrainedModel, sizes: Mapping[str, int]) -> None:
        """Let the config of a small model say how wide it is.

        Args:
            model: The small model; its config is changed.
            sizes: Units that are left, by the name of the group.
        """
        changes = {
            setting: self.values[setting] * _left(one, sizes) // one.size
            for one in self.classes
            for setting in one.settings
        }
        built = _build(model, changes)
        if built is None or _shapes(built) != _shapes(model):
            warn(
                "the config cannot say how wide this model is: save it with "
                "`dp.save_pruned`, and load it with `load_pretrained`.",
            )
            return
        change_(model.config, changes)
        _note_(model, built)


def _note_(model: nn.Module, built: nn.Module) -> None:
    """Let layers say the sizes they would have been built with; some only note them."""
    for ours, theirs in zip(model.modules(), built.modules(), strict=True):
        for name, value in vars(theirs).items():
            if type(value) is int and type(vars(ours).get(name)) is int:
                setattr(ours, name, value)


def _left(one: Class, sizes: Mapping[str, int]) -> int:
    """Units that are left of a class.

    A group is called by its layer and by what it is, `q_proj:heads`, unless it is the
    only one of its layer, as it is once the others are frozen.
    """
    name = one.groups[0]
    return sizes[name if name in sizes else name.partition(":")[0]]


def _says_nothing(name: str, *, equal: bool) -> str:
    if equal:
        return (
            f"the config of a {name} has no number for anything that can be removed: "
            "leave `equal_widths` out, and save with `dp.save_pruned`."
        )
    return (
        f"the config of a {name} has no numbers for single layers, or its code does "
        "not read them: leave `per_layer_config` out, save with `dp.save_pruned` and "
        "load with `load_pretrained`; or type `equal_widths=True`."
    )


def _classes(
    model: PreTrainedModel, groups: Groups, values: Mapping[Setting, int]
) -> list[Class]:
    found, left = list[Class](), list(groups)
    for count in (1, 2):
        for size in dict.fromkeys(group.size for group in left):
            for settings in _candidates(values, size, count):
                same = [group for group in left if group.size == size]
                if one := _class(model, groups, same, settings, values):
                    found.append(one)
                    left = [group for group in left if group.name not in one.groups]
    return found


def _candidates(
    values: Mapping[Setting, int], size: int, count: int
) -> Iterator[Settings]:
    """Sets of numbers that could be so many units, or so many times some."""
    for layer in dict.fromkeys(setting.layer for setting in values):
        likely = (s for s, n in values.items() if s.layer == layer and n % size == 0)
        yield from combinations(likely, count)


def _class(
    model: PreTrainedModel,
    groups: Groups,
    same: Sequence[PruneGroup],
    settings: Settings,
    values: Mapping[Setting, int],
) -> Class | None:
    """The groups of one size that these numbers stand for, if these are all of it."""
    if not same:
        return None
    size = same[0].size
    built = _build(model, {s: values[s] // size * (size - 1) for s in settings})
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
    each = {setting: values[setting] // size for setting in settings}
    is_free = all(
        changed(model.config, {s: unit * left for s, unit in each.items()}) is not None
        for left in range(1, size)
    )
    return Class(settings, tuple(matched), size) if is_all and is_free else None


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


def _build(model: PreTrainedModel, changes: Mapping[Setting, int]) -> nn.Module | None:
    """The model with other numbers in its config, without weights; None if none can."""
    config = changed(model.config, changes)
    if config is None:
        return None
    try:
        with torch.device("meta"):
            return type(model)(config)
    except Exception:  # noqa: BLE001 - whatever a model thinks of such a config
        return None


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}

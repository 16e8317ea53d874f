"""Show the groups of a model as a tree on a terminal, and as JSON."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from diffprune._graph import SPATIAL, FrozenAxis, Groups, PruneGroup

_FEW = 3


def to_dict(
    groups: Groups, worth: Mapping[str, float] = MappingProxyType({})
) -> dict[str, Any]:
    """Everything `view` shows, as plain data."""
    return {
        "parameters": groups.parameters(),
        "macs": groups.macs(),
        "groups": [
            {
                "name": group.name,
                "units": group.size,
                "parameters_per_unit": group.parameters,
                "macs_per_unit": group.macs,
                "parameter_share": _share(group.parameters, group, groups.parameters()),
                "mac_share": _share(group.macs, group, groups.macs()),
                "axes": [[axis.tensor, axis.dim] for axis in group.axes],
                **({"worth": worth[group.name]} if group.name in worth else {}),
            }
            for group in groups
        ],
        "frozen": [
            {"name": axis.name, "units": axis.size, "why": str(axis.reason)}
            for axis in _worth_saying(groups)
        ],
    }


def view(
    title: str, groups: Groups, worth: Mapping[str, float] = MappingProxyType({})
) -> Iterator[RenderableType]:
    """The groups as a tree, then what is frozen by reason.

    Args:
        title: What the model is called.
        groups: Its groups.
        worth: Of a run, what a unit of each group is worth; one is a mean unit.
    """
    yield (
        f"{title}: {len(groups)} group{'' if len(groups) == 1 else 's'}, "
        f"{groups.parameters():,} parameters, {groups.macs():,} MACs for these inputs"
    )
    if len(groups):
        yield _tree(groups, worth)
        yield (
            "A share says how much would go if all units of the group went. Two groups "
            "can share a weight, so shares need not add up to 100 %."
        )
    for why, axes in _by_reason(groups).items():
        names = _few([axis.name for axis in axes])
        yield f"frozen: {names} ({sum(axis.size for axis in axes):,} units)"
        yield Padding(why, (0, 0, 0, 2))


def _tree(groups: Groups, worth: Mapping[str, float]) -> Table:
    lines = outline(group.name for group in groups)
    table = Table(box=None, pad_edge=False)
    # On a narrow screen, only the last column gives way.
    table.add_column("group", min_width=max(len(line) for line, _ in lines))
    for heading in ("units", "parameters", "MACs", *(["worth"] if worth else [])):
        table.add_column(heading, justify="right", min_width=len(heading) + 1)
    table.add_column("layers", style="dim", no_wrap=True, overflow="ellipsis")
    for line, name in lines:
        cells = () if name is None else _cells(groups, groups[name], worth)
        table.add_row(line, *cells)
    return table


def _cells(
    groups: Groups, group: PruneGroup, worth: Mapping[str, float]
) -> tuple[str, ...]:
    known = (f"{worth[group.name]:.2g}",) if group.name in worth else ("",)
    return (
        f"{group.size:,}",
        f"{_share(group.parameters, group, groups.parameters()):.1%}",
        f"{_share(group.macs, group, groups.macs()):.1%}",
        *(known if worth else ()),
        _few(_layers(group)),
    )


def _layers(group: PruneGroup) -> list[str]:
    """What is cut together, as seen from the layer that the group is named after."""
    beside = group.name.rpartition(".")[0] + "."
    layers = [axis.tensor.rpartition(".")[0] for axis in group.axes]
    return [*dict.fromkeys(layer.removeprefix(beside) for layer in layers)]


def _few(names: list[str]) -> str:
    more = f" +{len(names) - _FEW}" if names[_FEW:] else ""
    return ", ".join(names[:_FEW]) + more


def _by_reason(groups: Groups) -> dict[str, list[FrozenAxis]]:
    reasons: dict[str, list[FrozenAxis]] = {}
    for axis in _worth_saying(groups):
        reasons.setdefault(str(axis.reason), []).append(axis)
    return reasons


def _worth_saying(groups: Groups) -> list[FrozenAxis]:
    return [axis for axis in groups.frozen if axis.reason.why != SPATIAL]


def _share(per_unit: int, group: PruneGroup, total: int) -> float:
    return per_unit * group.size / total if total else 0.0


def outline(names: Iterable[str]) -> list[tuple[str, str | None]]:
    """One line per name, under lines for what they have in common.

    Returns:
        Pairs of a line and the name it stands for; None for a line between.

    Examples:
        >>> for line, name in outline(["stem", "body.0.conv", "body.0.norm"]):
        ...     print(f"{line:10} {name}")
        stem       stem
        body.0     None
        ├─ conv    body.0.conv
        └─ norm    body.0.norm
    """
    root: dict[str, Any] = {}
    for name in names:
        branch = root
        for part in name.split("."):
            branch = branch.setdefault(part, {})
        branch[""] = name
    return [line for part, below in root.items() for line in _block(part, below)]


def _block(label: str, branch: dict[str, Any]) -> list[tuple[str, str | None]]:
    """A branch as if it stood alone, with its twigs below it."""
    while len(branch) == 1 and "" not in branch:
        ((part, branch),) = branch.items()
        label = f"{label}.{part}"
    lines: list[tuple[str, str | None]] = [(label, branch.get(""))]
    blocks = [_block(part, below) for part, below in branch.items() if part]
    for block in blocks:
        first, rest = ("└─ ", "   ") if block is blocks[-1] else ("├─ ", "│  ")
        indents = chain([first], repeat(rest))
        lines += [(f"{next(indents)}{line}", name) for line, name in block]
    return lines

"""Where runs stand, side by side; reads records, draws no conclusions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from diffprune.lab import Epoch, Run, read_run
from diffprune.lab.runs.records import Outcome
from diffprune.lab.training.progress_bar import architecture

_MANY_GATES = 6


@dataclass(frozen=True)
class Standing:
    """A run, and the network it has come to: the final one, or that of an epoch."""

    folder: Path
    run: Run
    network: Outcome | Epoch | None

    @classmethod
    def of(cls, folder: Path) -> "Standing":
        """Read a run.

        Raises:
            ArgumentError: If there is none, or a damaged one.
        """
        run = read_run(folder)
        last = run.epochs[-1] if run.epochs else None
        return cls(folder, run, run.outcome or last)

    def worst_difference(self) -> float | None:
        """The largest relative change of an output by any removal."""
        found = (r.certificate for r in self.run.removals if r.certificate)
        return max((c.max_relative for c in found), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; null where there is nothing yet."""
        network = self.network
        return {
            "folder": str(self.folder),
            "is_finished": self.run.outcome is not None,
            "epochs": len(self.run.epochs),
            "recipe": self.run.recipe.to_dict(),
            "test_error": network and network.test_error,
            "validation_error": network and network.validation_error,
            "parameters": network and network.parameters,
            "macs": network and network.macs,
            "units": network and dict(network.effective),
            "seconds": round(sum(epoch.seconds for epoch in self.run.epochs), 3),
            "worst_relative_difference": self.worst_difference(),
        }


def side_by_side(standings: Sequence[Standing]) -> Table:
    """One column per run: how their recipes differ, then what came out."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for standing in standings:
        table.add_column(standing.folder.name, justify="right", overflow="fold")
    for name, values in _differences([s.run.recipe.to_dict() for s in standings]):
        table.add_row(name, *map(_short, values))
    table.add_section()
    for name, cell in _ROWS.items():
        table.add_row(name, *(cell(s, standings[0]) for s in standings))
    return table


def _differences(recipes: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Entries that are not the same everywhere; names and folders say the same."""
    columns = {
        name: [recipe[name] for recipe in recipes]
        for name in recipes[0]
        if name not in {"name", "epochs"}
    }
    return [
        (name, values)
        for name, values in columns.items()
        if any(value != values[0] for value in values)
    ]


def _short(value: object) -> str:
    """One entry of a recipe."""
    if isinstance(value, Mapping):
        return "\n".join(f"{name} {entry}" for name, entry in value.items())
    return "none" if value is None else f"{value}"


def _epochs(standing: Standing, _: Standing) -> str:
    done, asked = len(standing.run.epochs), standing.run.recipe.epochs
    return f"{done}" if standing.run.outcome else f"{done} of {asked}"


def _test_error(standing: Standing, _: Standing) -> str:
    network = standing.network
    return "" if network is None else f"{network.test_error:.2f} %"


def _units(standing: Standing, _: Standing) -> str:
    network = standing.network
    if network is None or not network.effective:
        return ""
    widths = network.effective
    is_many = len(widths) > _MANY_GATES
    return f"{sum(widths.values()):,} in all" if is_many else architecture(widths)


def _cost(name: str) -> Callable[[Standing, Standing], str]:
    def cell(standing: Standing, first: Standing) -> str:
        if standing.network is None:
            return ""
        here: int = getattr(standing.network, name)
        there: int = getattr(first.network, name, 0)
        share = f" ({here / there:.1%})" if there and standing is not first else ""
        return f"{here:,}{share}"

    return cell


def _seconds(standing: Standing, _: Standing) -> str:
    epochs = standing.run.epochs
    return f"{epochs[0].seconds:.3g} -> {epochs[-1].seconds:.3g}" if epochs else ""


def _difference(standing: Standing, _: Standing) -> str:
    worst = standing.worst_difference()
    return "" if worst is None else f"{worst:.0e}"


_ROWS: Mapping[str, Callable[[Standing, Standing], str]] = {
    "epochs": _epochs,
    "test error": _test_error,
    "units": _units,
    "parameters": _cost("parameters"),
    "MACs": _cost("macs"),
    "seconds per epoch": _seconds,
    "worst removal": _difference,
}

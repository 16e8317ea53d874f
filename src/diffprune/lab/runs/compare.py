"""Runs side by side as a table: how their recipes differ, and what came out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from diffprune.lab.formatting import spell_widths
from diffprune.lab.runs.records import Run


def side_by_side(runs: Sequence[Run]) -> Table:
    """One column per run: how their recipes differ, then what came out.

    Args:
        runs: At least one. Shares are of the first one.
    """
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for run in runs:
        table.add_column(run.name, justify="right", overflow="fold")
    for name, values in _differences([run.recipe.to_dict() for run in runs]):
        table.add_row(name, *map(_entry, values))
    table.add_section()
    for name, cell in _ROWS.items():
        table.add_row(name, *(cell(run, runs[0]) for run in runs))
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


def _entry(value: object) -> str:
    """One entry of a recipe."""
    if isinstance(value, Mapping):
        return "\n".join(f"{name} {entry}" for name, entry in value.items())
    return "none" if value is None else f"{value}"


def _epochs(run: Run, _: Run) -> str:
    done, asked = len(run.epochs), run.recipe.epochs
    return f"{done}" if run.outcome else f"{done} of {asked}"


def _test_error(run: Run, _: Run) -> str:
    return "" if run.latest is None else f"{run.latest.test_error:.2f} %"


def _units(run: Run, _: Run) -> str:
    return "" if run.latest is None else spell_widths(run.latest.effective)


def _cost(name: str) -> Callable[[Run, Run], str]:
    def cell(run: Run, first: Run) -> str:
        if run.latest is None:
            return ""
        here: int = getattr(run.latest, name)
        there: int = getattr(first.latest, name, 0)
        share = f" ({here / there:.1%})" if there and run is not first else ""
        return f"{here:,}{share}"

    return cell


def _seconds(run: Run, _: Run) -> str:
    epochs = run.epochs
    return f"{epochs[0].seconds:.3g} -> {epochs[-1].seconds:.3g}" if epochs else ""


def _difference(run: Run, _: Run) -> str:
    worst = run.worst_certificate()
    return "" if worst is None else f"{worst.max_relative:.0e}"


_ROWS: Mapping[str, Callable[[Run, Run], str]] = {
    "epochs": _epochs,
    "test error": _test_error,
    "units": _units,
    "parameters": _cost("parameters"),
    "MACs": _cost("macs"),
    "seconds per epoch": _seconds,
    "worst removal": _difference,
}

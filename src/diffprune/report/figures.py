"""The plots of a report, each with its words and the numbers behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from diffprune.experiment.records import Widths
from diffprune.report import charts
from diffprune.report.frames import Row
from diffprune.report.page import Figure
from diffprune.report.words import Table, percent

MAX_GATES: Final = 12
"""Gates whose probabilities are drawn; of more, the widest ones are."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What all plots of a report share.

    Attributes:
        runs: All runs, by name.
        dense: Those among them without gates.
        shown: The gated run that is shown first; None if there is none.
        widths: Units of every gate before anything was removed.
        at_start: What that moment is called.
        last: The last epoch of any run.
        is_per_step: Whether seconds are those of a step, or of an epoch.
        datasets: Rows, by the names that plots call them.
    """

    runs: Sequence[str]
    dense: Sequence[str]
    shown: str | None
    widths: Widths
    at_start: str
    last: int
    is_per_step: bool
    datasets: Mapping[str, Sequence[Row]]


def architecture(scene: Scene) -> Figure | None:
    """The network before and after, layer by layer."""
    if scene.shown is None:
        return None
    rows = [row for row in scene.datasets["architecture"] if row["state"] == "after"]
    shown = [row for row in rows if row["run"] == scene.shown]
    sizes = ", ".join(f"{row['gate']} {row['label']}" for row in shown)
    return Figure(
        name="architecture",
        title="Units layer by layer",
        alt=f"Bars of each layer's units before and after, for {scene.shown}: {sizes}.",
        spec=charts.architecture(
            list(scene.widths), (scene.at_start, "after"), scene.shown
        ),
        table=Table(
            ("Gate", "Run", "Before", "After"),
            tuple(
                (row["gate"], row["run"], *row["label"].split(" → ")) for row in rows
            ),
        ),
    )


def curves(scene: Scene) -> list[Figure]:
    """Error, widths, multiply-adds and pace, over epochs."""
    pace = "Seconds per step" if scene.is_per_step else "Seconds per epoch"
    shared = (scene.runs, scene.dense, scene.last)
    found = [
        _curve(scene, "test", "Test error, %", charts.error_curves(*shared), ".2f"),
        _curve(scene, "macs", "Multiply-adds", charts.mac_curves(*shared), ","),
        _curve(scene, "seconds", pace, charts.pace_curves(*shared, title=pace), ".3g"),
    ]
    if scene.shown is not None:
        found.insert(1, _widths(scene, scene.shown))
    return found


def gates(scene: Scene) -> list[Figure]:
    """How open probabilities spread over time, a plot for each gate."""
    rows = scene.datasets["gates"]
    if scene.shown is None or not rows:
        return []
    widest = sorted(scene.widths, key=lambda gate: -scene.widths[gate])[:MAX_GATES]
    chosen = [gate for gate in scene.widths if gate in widest]
    return [
        _gate(scene, scene.shown, gate, number) for number, gate in enumerate(chosen)
    ]


def front(scene: Scene) -> list[Figure]:
    """Error against multiply-adds and against parameters."""
    rows = scene.datasets["front"]
    table = Table(
        (
            "Network",
            "Architecture",
            "Error, %",
            "Multiply-adds",
            "Parameters",
            "Source",
        ),
        tuple(
            (
                row["name"],
                row["architecture"],
                f"{row['error']:.2f}",
                f"{row['macs']:,}",
                f"{row['parameters']:,}",
                row["source"],
            )
            for row in rows
        ),
    )
    costs = {"macs": "Multiply-adds", "parameters": "Parameters"}
    return [
        Figure(
            name=f"front-{cost}",
            title=f"Error against {title.lower()}",
            alt=f"Test error of {len(rows)} networks against their {title.lower()}.",
            spec=charts.front(cost, title),
            table=table,
        )
        for cost, title in costs.items()
        if rows
    ]


def _curve(
    scene: Scene, field: str, title: str, spec: Mapping[str, Any], number: str
) -> Figure:
    rows = scene.datasets["epochs"]
    ends = ", ".join(
        f"{run} ends at {format([r for r in rows if r['run'] == run][-1][field], number)}"
        for run in scene.runs
    )
    return Figure(
        name=f"curve-{field}",
        title=title,
        alt=f"{title} over {scene.last} epochs: {ends}.",
        spec=spec,
        table=_by_epoch(rows, "run", field, number),
    )


def _widths(scene: Scene, shown: str) -> Figure:
    return Figure(
        name="curve-widths",
        title=f"Units left, of those {scene.at_start}",
        alt=f"Share of units that every gate has left, over {scene.last} epochs.",
        spec=charts.width_curves(list(scene.widths), shown, scene.last),
        table=Table(
            ("Epoch", "Run", "Gate", "Units", "Left"),
            tuple(
                (
                    str(row["epoch"]),
                    row["run"],
                    row["gate"],
                    str(row["units"]),
                    percent(row["share"]),
                )
                for row in scene.datasets["widths"]
            ),
        ),
    )


def _gate(scene: Scene, shown: str, gate: str, number: int) -> Figure:
    rows = [row for row in scene.datasets["gates"] if row["gate"] == gate]
    return Figure(
        name=f"gate-{number}",
        title=gate,
        alt=f"Histograms of the open probabilities of {gate} over epochs.",
        spec=charts.gate_heatmap(gate, shown, scene.last),
        table=Table(
            ("Epoch", "Run", "Probability", "Units"),
            tuple(
                (
                    str(row["epoch"]),
                    row["run"],
                    f"{row['low']:.2f} to {row['high']:.2f}",
                    str(row["count"]),
                )
                for row in rows
            ),
        ),
    )


def _by_epoch(rows: Sequence[Row], by: str, field: str, number: str) -> Table:
    """One row per epoch, one column per series."""
    names = list(dict.fromkeys(row[by] for row in rows))
    cells = {(row["epoch"], row[by]): format(row[field], number) for row in rows}
    epochs = sorted({row["epoch"] for row in rows})
    return Table(
        ("Epoch", *names),
        tuple((str(e), *(cells.get((e, name), "") for name in names)) for e in epochs),
    )

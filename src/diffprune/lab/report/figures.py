"""The plots of a report, each with its words and the numbers behind it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diffprune.lab.report import charts
from diffprune.lab.report.curves import Quantity, gate_heatmap, run_curves, width_curves
from diffprune.lab.report.diagram import Block
from diffprune.lab.report.networks import LayerCost
from diffprune.lab.report.page import Figure
from diffprune.lab.report.rows import BINS, Row
from diffprune.lab.report.text import Table
from diffprune.lab.runs.records import Widths


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What all plots of a report share.

    Attributes:
        colors: Of every run, by name.
        shown: The gated run that is shown first; None if there is none.
        widths: Units of every gate before anything was removed.
        at_start: What that moment is called.
        last: The last epoch of any run.
        pace: What is plotted as the pace of training.
        probabilities: What those of every gate that is shown are between.
        blocks: The network before, layer by layer; empty if nobody made it.
        layers: What the layers of runs cost, by run.
        datasets: Rows, by the names that plots call them.
    """

    colors: Mapping[str, str]
    shown: str | None
    widths: Widths
    at_start: str
    last: int
    pace: str
    probabilities: Mapping[str, Sequence[Row]]
    blocks: Sequence[Block]
    layers: Mapping[str, Sequence[LayerCost]]
    datasets: Mapping[str, Sequence[Row]]


def architecture(scene: Scene) -> list[Figure]:
    """The network before and after, layer by layer: its form, and what layers cost."""
    if scene.shown is None:
        return []
    if not scene.layers:
        return [_bars(scene, scene.shown)]
    shown = scene.shown if scene.shown in scene.layers else next(iter(scene.layers))
    costs = {"macs": "Multiply-adds", "parameters": "Parameters"}
    return [
        _network(scene, shown),
        *(_shares(scene, shown, cost, title) for cost, title in costs.items()),
    ]


def _network(scene: Scene, shown: str) -> Figure:
    rows = [row for row in scene.datasets["blocks"] if row["before"] is not None]
    sizes = ", ".join(f"{r['name']} {r['label']}" for r in rows if r["run"] == shown)
    return Figure(
        name="network",
        title="Layers; bars are as long as the square roots of units, grey is gone",
        alt=f"Layers from input to output, with units before and after: {sizes}.",
        spec=charts.network(
            lanes=1 + max(block.lane for block in scene.blocks),
            rows=1 + max(block.row for block in scene.blocks),
            run=shown,
        ),
        table=Table(
            ("Layer", "Run", "Before", "After"),
            tuple(
                (r["name"], r["run"], str(r["before"]), str(r["after"])) for r in rows
            ),
        ),
    )


def _shares(scene: Scene, shown: str, cost: str, title: str) -> Figure:
    rows = [row for row in scene.datasets["shares"] if row["cost"] == cost]
    after = [row for row in rows if row["state"] == "after"]
    left = ", ".join(f"{r['layer']} {r['label']}" for r in after if r["run"] == shown)
    return Figure(
        name=f"share-{cost}",
        title=f"{title} by layer, as shares of the whole network before",
        alt=f"{title} of every layer before and after, for {shown}: {left}.",
        spec=charts.shares(cost, list(dict.fromkeys(r["layer"] for r in rows)), shown),
        table=Table(
            ("Layer", "Run", "When", title, "Of the whole before"),
            tuple(
                (
                    row["layer"],
                    row["run"],
                    row["state"],
                    f"{row['count']:,}",
                    f"{row['share']:.2%}",
                )
                for row in rows
            ),
        ),
    )


def _bars(scene: Scene, chosen: str) -> Figure:
    """Gates alone, if nobody has made the network again."""
    rows = [row for row in scene.datasets["architecture"] if row["state"] == "after"]
    shown = [row for row in rows if row["run"] == chosen]
    sizes = ", ".join(f"{row['gate']} {row['label']}" for row in shown)
    return Figure(
        name="architecture",
        title="Units layer by layer; bars are as long as their square roots",
        alt=f"Bars of each layer's units before and after, for {chosen}: {sizes}.",
        spec=charts.architecture(list(scene.widths), (scene.at_start, "after"), chosen),
        table=Table(
            ("Gate", "Run", "Before", "After"),
            tuple(
                (row["gate"], row["run"], *row["label"].split(" → ")) for row in rows
            ),
        ),
    )


def curves(scene: Scene) -> list[Figure]:
    """Error, widths, multiply-adds and pace, over epochs."""
    rows = scene.datasets["epochs"]
    # A logarithm tells 1 % from 2 % as well as 10 % from 20 %, but has no zero.
    error_scale = "log" if all(row["test"] for row in rows) else "sqrt"
    error = Quantity(
        field="test",
        title="Test error, %",
        digits=".2f",
        axis=",.2~f",
        scale=error_scale,
    )
    found = [
        _curve(scene, error),
        _curve(scene, Quantity(field="macs", title="Multiply-adds", digits=",")),
        _curve(
            scene,
            Quantity(field="pace", title=scene.pace, digits=",.3~f", axis=",.3~f"),
        ),
    ]
    if scene.shown is not None:
        found.insert(1, _widths(scene, scene.shown))
    return found


def gates(scene: Scene) -> list[Figure]:
    """How open probabilities spread over time, a plot for each gate.

    None if all gates were held open, as a budget holds them: it decides itself.
    """
    rows = scene.datasets["gates"]
    if scene.shown is None or all(row["bin"] == BINS - 1 for row in rows):
        return []
    lowest = min(BINS // 2, *(row["bin"] for row in rows)) / BINS
    return [
        Figure(
            name=f"gate-{number}",
            title=gate,
            alt=f"Histograms of the open probabilities of {gate} over epochs.",
            spec=gate_heatmap(gate, scene.shown, lowest=lowest, last=scene.last),
            table=_probabilities(scene.probabilities[gate]),
        )
        for number, gate in enumerate(scene.probabilities)
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
    kinds = Counter(str(row["kind"]) for row in rows)
    return [
        Figure(
            name=f"front-{cost}",
            title=f"Error against {title.lower()}",
            alt=f"Test error of {len(rows)} networks against their {title.lower()}.",
            spec=charts.front(cost, title, kinds),
            table=table,
        )
        for cost, title in costs.items()
        if rows
    ]


def _curve(scene: Scene, quantity: Quantity) -> Figure:
    rows, field, title = scene.datasets["epochs"], quantity.field, quantity.title
    last = {row["run"]: row[field] for row in rows}
    ends = ", ".join(f"{run} ends at {value:.3g}" for run, value in last.items())
    return Figure(
        name=f"curve-{field}",
        title=title,
        alt=f"{title} over {scene.last} epochs: {ends}.",
        spec=run_curves(quantity, scene.colors, scene.last),
        table=_by_epoch(rows, field),
    )


def _widths(scene: Scene, shown: str) -> Figure:
    return Figure(
        name="curve-widths",
        title="Units left",
        alt=(
            f"Share of the units {scene.at_start} that every gate has left, over "
            f"{scene.last} epochs."
        ),
        spec=width_curves(list(scene.widths), shown, scene.last),
        table=_by_gate(scene.datasets["widths"], list(scene.widths)),
    )


def _by_gate(rows: Sequence[Row], gates: Sequence[str]) -> Table:
    """One row per run and epoch, one column per gate."""
    cells = {(r["run"], r["epoch"], r["gate"]): str(r["units"]) for r in rows}
    keys = dict.fromkeys((row["run"], row["epoch"]) for row in rows)
    return Table(
        ("Epoch", "Run", *gates),
        tuple(
            (str(epoch), run, *(cells.get((run, epoch, gate), "") for gate in gates))
            for run, epoch in keys
        ),
    )


def _probabilities(rows: Sequence[Row]) -> Table:
    return Table(
        ("Epoch", "Run", "Units", "Lowest", "Median", "Highest"),
        tuple(
            (
                str(row["epoch"]),
                row["run"],
                str(row["units"]),
                f"{row['lowest']:.1%}",
                f"{row['median']:.1%}",
                f"{row['highest']:.1%}",
            )
            for row in rows
        ),
    )


def _by_epoch(rows: Sequence[Row], field: str) -> Table:
    """One row per epoch, one column per run."""
    runs = list(dict.fromkeys(row["run"] for row in rows))
    cells = {(row["epoch"], row["run"]): f"{row[field]:.6g}" for row in rows}
    epochs = sorted({row["epoch"] for row in rows})
    return Table(
        ("Epoch", *runs),
        tuple((str(e), *(cells.get((e, run), "") for run in runs)) for e in epochs),
    )

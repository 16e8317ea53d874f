"""A pruner's state as a table a person can read."""

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from diffprune._pruner.pruner import Pruner


def summarise(pruner: "Pruner[Any]") -> str:
    """Per group: kept of total, parameters, MACs, open probability; then totals."""
    now, dense = pruner.shape(), pruner.dense
    units = {unit.name: unit for unit in pruner.units()}
    table = Table(box=None, pad_edge=False)
    table.add_column("group")
    for heading in ("units", "open", "P(open)", "parameters/unit", "MACs/unit"):
        table.add_column(heading, justify="right")
    for name, gate in pruner.gates.items():
        probability = float(gate.prob_open().detach().mean())
        table.add_row(
            name + (" (at its floor)" if gate.at_floor() else ""),
            f"{gate.size} of {dense.units[name]}",
            str(int(gate.is_open().sum())),
            f"{probability:.2f}",
            f"{units[name].parameters:,}",
            f"{units[name].macs:,}",
        )
    console = Console(width=100, no_color=True)
    with console.capture() as captured:
        console.print(table)
    asked = [] if pruner.controller is None else pruner.controller.report()
    totals = (
        f"{now.parameters:,} of {dense.parameters:,} parameters, "
        f"{now.macs:,} of {dense.macs:,} MACs"
    )
    return captured.get() + "\n".join([totals, *asked])

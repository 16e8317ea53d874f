"""What is left of a model, gate by gate, as a table of plain text."""

from collections.abc import Mapping, Sequence

import torch

from diffprune._graph import PruneGroup, table
from diffprune._pruner.gated_model import RemovalRecord
from diffprune.gates import Gate, GateLike

HEADER = ("group", "units", "open", "P(open)", "parameters/unit", "MACs/unit")


def summarise(
    gates: Mapping[str, GateLike],
    units: Mapping[str, PruneGroup],
    now: RemovalRecord,
    dense: RemovalRecord,
    asked: Sequence[str],
) -> str:
    """Per gate: units left of all, open ones, costs of one; then totals.

    Args:
        gates: By name.
        units: What each of them decides about.
        now: What is left of the model.
        dense: What there was at first.
        asked: Lines to close with: what a budget asks for.
    """
    rows = [_row(gate, units[name], dense.units[name]) for name, gate in gates.items()]
    totals = (
        f"{now.parameters:,} of {dense.parameters:,} parameters, "
        f"{now.macs:,} of {dense.macs:,} MACs"
    )
    lines = table([HEADER, *rows], numbers=range(1, len(HEADER)))
    return "\n".join([*lines, totals, *asked])


@torch.no_grad()
def _row(gate: GateLike, unit: PruneGroup, whole: int) -> tuple[str, ...]:
    is_ours = isinstance(gate, Gate)
    return (
        unit.name + (" (at its floor)" if is_ours and gate.at_floor() else ""),
        f"{gate.size} of {whole}",
        str(int(gate.is_open().sum())),
        f"{float(gate.prob_open().mean()):.2f}" if is_ours else "-",
        f"{unit.parameters:,}",
        f"{unit.macs:,}",
    )

"""Put a page together from runs: its sentences, tables and plots, in order."""

from collections.abc import Sequence

from diffprune.lab.report import figures, rows as frames, text as words, theme
from diffprune.lab.report.figures import Scene
from diffprune.lab.report.frontier import Reference, front_rows
from diffprune.lab.report.networks import Network, dense_network, network
from diffprune.lab.report.page import Page
from diffprune.lab.report.run_latency import Measured, measure as measure_networks
from diffprune.lab.runs.records import Run


def compose(
    runs: Sequence[Run],
    references: Sequence[Reference] = (),
    *,
    measure: bool,
    trust: bool = False,
) -> Page:
    """Everything that a report about these runs says.

    Args:
        runs: Each with at least one epoch.
        references: Networks of others, for plots of error against cost.
        measure: Whether to rebuild the networks and time them.
        trust: Whether to run code outside the present folder for that.
    """
    seen = (
        measure_networks(runs, trust=trust)
        if measure
        else Measured(note="Not measured.")
    )
    gated = [run for run in runs if not run.is_dense] or list(runs)
    dense = dense_network(runs, seen.dense)
    networks = [network(run, seen.seconds.get(run.name)) for run in gated]
    scene = _scene(runs, dense, networks, references, seen)
    smallest = min(networks, key=lambda n: n.macs or 0)
    chosen = gated[networks.index(smallest)]
    return Page(
        title=words.title(networks, dense),
        warning=words.warning(smallest, dense),
        headline=words.headline(smallest, dense, len(networks)),
        summary=f"{words.asked(chosen)} {words.got(smallest, dense)}",
        tiles=words.tiles(smallest, dense),
        comparison=words.comparison(dense, networks),
        clock=seen.note,
        runs=[run.name for run in gated],
        last_epoch=scene.last,
        architecture=figures.architecture(scene),
        curves=figures.curves(scene),
        gates=figures.gates(scene),
        front=figures.front(scene) if references or len(networks) > 1 else [],
        front_note=words.front_note(with_references=bool(references)),
        proofs=[proof for run in gated if (proof := words.proof(run))],
        snippets=words.snippets(chosen),
        made_with=words.made_with(chosen),
        datasets=scene.datasets,
    )


def _scene(
    runs: Sequence[Run],
    dense: Network,
    networks: Sequence[Network],
    references: Sequence[Reference],
    seen: Measured,
) -> Scene:
    gated = [run for run in runs if not run.is_dense]
    first = frames.first_widths(gated)
    widths = {gate: dense.widths.get(gate, units) for gate, units in first.items()}
    is_known = set(widths) <= set(dense.widths)
    at_start = "before" if is_known else "after the first epoch"
    drawn = frames.widest(widths)
    everyone = [dense, *networks] if dense.error is not None else networks
    return Scene(
        colors=_colors(runs),
        shown=gated[0].name if gated else None,
        widths=widths,
        at_start=at_start,
        last=max(run.epochs[-1].number for run in runs),
        pace=frames.pace_title(runs),
        probabilities={gate: frames.probability_rows(gated, gate) for gate in drawn},
        blocks=seen.blocks,
        layers=seen.layers,
        datasets={
            "blocks": frames.block_rows(seen.blocks, seen.small_blocks),
            "edges": frames.edge_rows(seen.blocks),
            "shares": frames.share_rows(seen.layers),
            "epochs": frames.epoch_rows(runs),
            "widths": frames.width_rows(gated, widths),
            "architecture": frames.architecture_rows(
                networks, widths, at_start=at_start
            ),
            "gates": frames.gate_rows(gated, drawn),
            "front": front_rows(everyone, references),
        },
    )


def _colors(runs: Sequence[Run]) -> dict[str, str]:
    """Grey without gates; the others are told apart."""
    hues = iter(theme.series(len(runs)))
    return {s.name: theme.DENSE if s.is_dense else next(hues) for s in runs}

"""From runs to the page about them; every sentence and plot is made elsewhere."""

from collections.abc import Sequence
from typing import Final

from diffprune.lab.report import (
    figures,
    proofs,
    rows as frames,
    snippets,
    text as words,
    theme,
)
from diffprune.lab.report.figures import Scene
from diffprune.lab.report.frontier_rows import front_rows
from diffprune.lab.report.networks import Network, dense_network, network
from diffprune.lab.report.page import Page
from diffprune.lab.report.references import LENET5, Published, lenet5_on_mnist
from diffprune.lab.report.run_latency import Measured, measure as measure_networks
from diffprune.lab.report.sources import Source
from paper.lenet5_tasks import GATES, lenet5_mnist, lenet5_mnist_validated

_MNIST: Final = {
    f"{task.__module__}:{task.__name__}"
    for task in (lenet5_mnist, lenet5_mnist_validated)
}
_TABLE1: Final = ("lenet5-sigmoid", "lenet5-softmax")


def compose(sources: Sequence[Source], *, measure: bool) -> Page:
    """Everything that a report about these runs says."""
    seen = measure_networks(sources) if measure else Measured(note="Not measured.")
    gated = [source for source in sources if not source.is_dense] or list(sources)
    is_mnist = all(map(_is_mnist, sources))
    published = lenet5_on_mnist() if is_mnist else ()
    before = seen.dense or (_lenet5() if is_mnist else None)
    dense = dense_network(sources, before)
    networks = [network(source, seen.seconds.get(source.name)) for source in gated]
    scene = _scene(sources, dense, networks, published)
    smallest = min(networks, key=lambda n: n.macs or 0)
    chosen = gated[networks.index(smallest)]
    return Page(
        title=", ".join(n.name for n in networks),
        headline=words.headline(smallest, dense, len(networks)),
        summary=f"{words.asked(chosen)} {words.got(smallest, dense)}",
        tiles=words.tiles(smallest, dense),
        comparison=words.comparison(dense, networks),
        clock=seen.note,
        runs=[source.name for source in gated],
        last_epoch=scene.last,
        architecture=figures.architecture(scene),
        curves=figures.curves(scene),
        gates=figures.gates(scene),
        front=figures.front(scene) if published or len(networks) > 1 else [],
        front_note=words.front_note(published=bool(published)),
        proofs=[proof for source in gated if (proof := proofs.proof(source))],
        snippets=snippets.snippets(chosen),
        made_with=words.made_with(chosen),
        datasets=scene.datasets,
    )


def _scene(
    sources: Sequence[Source],
    dense: Network,
    networks: Sequence[Network],
    published: Sequence[Published],
) -> Scene:
    gated = [source for source in sources if not source.is_dense]
    first = frames.first_widths(gated)
    widths = {gate: dense.widths.get(gate, units) for gate, units in first.items()}
    is_known = set(widths) <= set(dense.widths)
    at_start = "before" if is_known else "after the first epoch"
    drawn = frames.widest(widths)
    everyone = [dense, *networks] if dense.error is not None else networks
    return Scene(
        colors=_colors(sources),
        shown=gated[0].name if gated else None,
        widths=widths,
        at_start=at_start,
        last=max(source.last.number for source in sources),
        pace=frames.pace_title(sources),
        probabilities={gate: frames.probability_rows(gated, gate) for gate in drawn},
        datasets={
            "epochs": frames.epoch_rows(sources),
            "widths": frames.width_rows(gated, widths),
            "architecture": frames.architecture_rows(
                networks, widths, at_start=at_start
            ),
            "gates": frames.gate_rows(gated, drawn),
            "front": front_rows(everyone, published),
        },
    )


def _colors(sources: Sequence[Source]) -> dict[str, str]:
    """Grey without gates; the others are told apart."""
    hues = iter(theme.series(len(sources)))
    return {s.name: theme.DENSE if s.is_dense else next(hues) for s in sources}


def _lenet5() -> Network:
    """What the literature's LeNet-5 is before training; for runs that do not say."""
    return Network(
        name="dense",
        parameters=LENET5.parameters,
        macs=LENET5.macs,
        widths=dict(zip(GATES, LENET5, strict=True)),
    )


def _is_mnist(source: Source) -> bool:
    """Runs from before tasks were recorded are known by the names of their recipes."""
    task = source.run.task
    return task in _MNIST or (task is None and source.run.recipe.name in _TABLE1)

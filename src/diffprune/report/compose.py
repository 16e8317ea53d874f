"""From runs to the page about them; every sentence and plot is made elsewhere."""

from collections.abc import Sequence
from typing import Final

from diffprune.experiment.builtin import lenet5_mnist, lenet5_mnist_validated
from diffprune.report import figures, frames, proofs, snippets, words
from diffprune.report.figures import Scene
from diffprune.report.measure import Measured, measure as measure_networks
from diffprune.report.networks import Network, dense_network, measured, network
from diffprune.report.page import Page
from diffprune.report.published import Published, lenet5_on_mnist
from diffprune.report.sources import Source

_MNIST: Final = {
    f"{task.__module__}:{task.__name__}"
    for task in (lenet5_mnist, lenet5_mnist_validated)
}
_TABLE1: Final = ("lenet5-sigmoid", "lenet5-softmax")


def compose(sources: Sequence[Source], *, measure: bool) -> Page:
    """Everything that a report about these runs says."""
    seen = measure_networks(sources) if measure else Measured(note="Not measured.")
    gated = [source for source in sources if not source.is_dense] or list(sources)
    dense, *networks = measured(
        [dense_network(sources, seen.dense), *map(network, gated)], seen.seconds
    )
    published = lenet5_on_mnist() if any(map(_is_mnist, sources)) else ()
    scene = _scene(sources, dense, networks, published, seen.steps)
    smallest = min(networks, key=lambda n: n.macs or 0)
    chosen = gated[networks.index(smallest)]
    return Page(
        title=", ".join(n.name for n in networks),
        headline=words.headline(smallest, dense, len(networks)),
        summary=words.asked_and_got(chosen, smallest, dense),
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
    steps: int | None,
) -> Scene:
    gated = [source for source in sources if not source.is_dense]
    known = dict(dense.widths)
    widths = frames.first_widths(gated) | known
    at_start = "before" if known else "after the first epoch"
    everyone = [dense, *networks] if dense.error is not None else networks
    return Scene(
        runs=[source.name for source in sources],
        dense=[source.name for source in sources if source.is_dense],
        shown=gated[0].name if gated else None,
        widths=widths,
        at_start=at_start,
        last=max(source.last.number for source in sources),
        is_per_step=steps is not None,
        datasets={
            "epochs": frames.epoch_rows(sources, steps),
            "widths": frames.width_rows(gated, widths),
            "architecture": frames.architecture_rows(
                networks, widths, at_start=at_start
            ),
            "gates": frames.gate_rows(gated),
            "front": frames.front_rows(everyone, published),
        },
    )


def _is_mnist(source: Source) -> bool:
    """Runs from before tasks were recorded are known by the names of their recipes."""
    task = source.run.task
    return task in _MNIST or (task is None and source.run.recipe.name in _TABLE1)

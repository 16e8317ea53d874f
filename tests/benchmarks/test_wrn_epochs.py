from dataclasses import replace

from rich.console import Console

from benchmarks.wrn_epochs import RECORDS, show, time_epoch
from paper.reproduce import read_records


def test_the_network_that_is_timed_is_that_of_the_epoch():
    run = next(run for run in read_records(RECORDS) if run.recipe.strength is not None)
    few = replace(run, recipe=replace(run.recipe, batch_size=4))
    result = time_epoch(few, run.epochs[-1])
    assert (result.run, result.epoch) == (run.recipe.name, run.epochs[-1].number)
    assert result.macs == run.outcome.macs
    console = Console(record=True, width=100)
    console.print(show([result]))
    assert f"{result.seconds / result.original:.1%}" in console.export_text()

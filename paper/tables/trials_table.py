"""What was tried with LeNet-5 on held-out images of MNIST: from runs to a table."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from diffprune.lab import Run
from diffprune.lab.formatting import architecture, short
from paper.tables.layout import empty_table

EVERY: Final = 20
"""A row for every so many epochs."""
_HEADINGS: Final = ("open gates", "connected", "parameters", "MACs", "held-out %")


def trials_table(runs: Sequence[Run]) -> Table:
    """How every run stood on its way; the images of the test were not looked at."""
    title = "LeNet-5 on 55,000 images of MNIST, judged by 5,000 others"
    table = empty_table(title, _HEADINGS)
    for run in runs:
        table.add_row(run.recipe.name.removeprefix("lenet5-trial-").replace("-", " "))
        for epoch in run.epochs:
            if epoch.number % EVERY == 0 or epoch is run.epochs[-1]:
                table.add_row(
                    f"  {epoch.number} epochs",
                    architecture(epoch.raw),
                    architecture(epoch.effective),
                    f"{epoch.parameters:,}",
                    short(epoch.macs),
                    f"{epoch.test_error:.2f}",
                )
        table.add_section()
    return table

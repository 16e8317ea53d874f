"""What certificates prove about the removals of a run; verifies nothing itself."""

from diffprune._pruner import RemovalRecord
from diffprune.lab.report.networks import spell_widths
from diffprune.lab.report.page import Proof
from diffprune.lab.report.sources import Source
from diffprune.lab.report.text import Table


def proof(source: Source) -> Proof | None:
    """The worst certificate in words, and all of them in a table; None without any."""
    removals = [removal for removal in source.run.removals if removal.certificate]
    if not removals:
        return None
    worst = max(r.certificate.max_relative for r in removals if r.certificate)
    return Proof(
        run=source.name,
        summary=(
            f"{source.name}: {len(removals)} removals, each verified. Outputs before "
            f"and after differ by at most {worst:.1e}, relative to the largest output."
        ),
        table=Table(
            (
                "Step",
                "Units left",
                "Parameters",
                "Absolute difference",
                "Relative difference",
                "Arithmetic",
            ),
            tuple(map(_row, removals)),
        ),
    )


def _row(removal: RemovalRecord) -> tuple[str, ...]:
    certificate = removal.certificate
    assert certificate is not None  # noqa: S101 - others were left out
    return (
        f"{removal.step:,}",
        spell_widths(removal.units),
        f"{removal.parameters:,}",
        f"{certificate.max_absolute:.1e}",
        f"{certificate.max_relative:.1e}",
        certificate.dtype,
    )

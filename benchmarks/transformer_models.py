"""What can be removed from models of transformers, and what their configs can say.

Every model is built from a small config, without any download. All that can be removed
is cut by a unit, and outputs are compared. Then only that is cut which the config has
numbers for; the model is saved, loaded again by plain `from_pretrained`, and must
return the same. `python -m benchmarks.transformer_models` does so for what has no
record yet, and prints the table of docs/howto/transformers.md. For another version of
transformers, delete the record first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ._command import command
from ._records import RESULTS
from ._run_record import RunRecord


@dataclass(frozen=True)
class Result:
    """What was found about an architecture.

    Attributes:
        model: Its name.
        version: Of transformers.
        kind: The class of the model.
        parts: What can be removed.
        relative: How far outputs were from those of the masked original, at most.
        numbers: What the config has numbers for; two that change together are one.
        with_many_heads: The same of a model with 32 heads and a width of 64, if that
            was looked at.
        is_loaded: Whether `from_pretrained` gave the same model back.
    """

    model: str
    version: str
    kind: str
    parts: Sequence[str]
    relative: float
    numbers: Sequence[str]
    with_many_heads: Sequence[str] | None
    is_loaded: bool


def _look_at(name: str) -> Result:
    from .transformer_cuts import look_at  # noqa: PLC0415 - tables need no transformers

    return look_at(name)


RUNS: Final = RunRecord(
    path=RESULTS / "transformer_models.json",
    command="python -m benchmarks.transformer_models",
    recipe={"units cut per group": 1},
    result=Result,
    key=lambda result: result.model,
    run=_look_at,
)
HEADER: Final = ("model", "what can be removed", "with `equal_widths=True`")


def rows(found: Sequence[Result]) -> Iterator[tuple[str, str, str]]:
    """A row for each architecture: what can go, and what the config says of it."""
    for result in found:
        yield result.model, ", ".join(result.parts), _said(result)


def _said(result: Result) -> str:
    """The numbers of the config; a star marks those that not every width allows."""
    if not result.is_loaded:
        return "nothing"
    many = result.with_many_heads
    return ", ".join(
        f"`{number.replace(' and ', '` with `')}`"
        + ("" if many is None or number in many else " (\\*)")
        for number in result.numbers
    )


def main() -> None:
    """Look at what has no record yet, and print the table."""
    from .transformer_cases import CASES  # noqa: PLC0415 - for who makes records

    RUNS.show(rows(RUNS.completed(CASES)))


if __name__ == "__main__":
    command(__doc__).parse_args()
    main()

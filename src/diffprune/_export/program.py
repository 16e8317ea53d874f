"""A model as a `.pt2` file that torch runs without its code."""

import io
import os
from pathlib import Path

import torch
from torch import nn
from torch.export import ExportedProgram

from diffprune._core.door import door
from diffprune._core.files import written_whole
from diffprune._export.checked_export import check_same, checked_program, runner
from diffprune._graph import ExampleInputs, quiet
from diffprune.errors import ExportError


@door
def to_exported_program(
    model: nn.Module,
    example_inputs: ExampleInputs,
    path: str | os.PathLike[str] | None = None,
    *,
    batch_dim: int | None = 0,
) -> ExportedProgram:
    """Export the model, in eval mode, with `torch.export`; check it; write it.

    The program has been compared with the model at three batch sizes. A file is read
    again and compared before it gets its name. It holds neither the example inputs nor
    paths of source files.

    Args:
        model: Without gates: what `Pruner.finalize`, `remove` or `compact` returned.
        example_inputs: As for `find_groups`.
        path: A `.pt2` file, for `torch.export.load`.
        batch_dim: The dimension of every input that may have any size; None for a
            program with fixed shapes.

    Raises:
        ArgumentError: If the model has gates, or the inputs no such dimension.
        TraceError: If the model cannot be written down as one graph, or only for one
            batch size.
        ExportError: If the program would compute something else, or torch cannot
            write it.
        StorageError: If the disk refuses; the earlier file is as it was.

    Examples:
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> program = to_exported_program(model, torch.rand(2, 3))
        >>> program.module()(torch.rand(7, 3)).shape
        torch.Size([7, 2])
    """
    program = checked_program(model, example_inputs, batch_dim)
    if path is not None:
        with written_whole(Path(path)) as partial, quiet():
            # By way of memory: torch ends the process where a disk is full.
            partial.write_bytes(_as_bytes(program).getbuffer())
            again = torch.export.load(partial)
            check_same(model, runner(again), example_inputs, batch_dim)
    return program


def _as_bytes(program: ExportedProgram) -> io.BytesIO:
    buffer = io.BytesIO()
    try:
        torch.export.save(program, buffer)
    except Exception as error:
        raise ExportError(
            f"torch cannot write the program to a file: {error}\nIf that is about a "
            "class that the forward takes or returns, use a tuple or a dict there, or "
            "register the class with a `serialized_type_name`. Nothing was written."
        ) from error
    return buffer

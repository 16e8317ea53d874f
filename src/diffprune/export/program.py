"""A model as one graph of ATen operations, in a file. Knows no other runtime."""

import logging
import os
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, ShapesCollection

from diffprune.errors import ArgumentError, TraceError
from diffprune.export.batch import batch_size, resized, tensor_leaves
from diffprune.export.check import Run, check_same, model_outputs
from diffprune.gates import Gate
from diffprune.graph.trace import ExampleInputs, call_arguments, check_plain, mode

_NEEDED: Final = {"val", "tensor_meta", "nn_module_stack"}


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
        ExportError: If the program would compute something else.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> program = to_exported_program(model, torch.rand(2, 3))
        >>> program.module()(torch.rand(7, 3)).shape
        torch.Size([7, 2])
    """
    program = checked_program(model, example_inputs, batch_dim)
    if path is not None:
        with written_whole(Path(path)) as partial:
            torch.export.save(program, partial)
            again = torch.export.load(partial)
            check_same(model, _runner(again), example_inputs, batch_dim)
    return program


def checked_program(
    model: nn.Module, inputs: ExampleInputs, batch_dim: int | None
) -> ExportedProgram:
    """Trace the model, and compare what comes out with it.

    Raises:
        ArgumentError: If the model has gates, or the inputs no batch dimension.
        TraceError: If the model cannot be traced.
        ExportError: If the program computes something else.
    """
    _check_plain(model)
    model_outputs(model, inputs)
    program = _trace(model, inputs, batch_dim)
    _forget_origin_(program)
    check_same(model, _runner(program), inputs, batch_dim)
    return program


@contextmanager
def quiet() -> Generator[None]:
    """Say nothing about exporting; failures are explained."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextmanager
def written_whole(path: Path) -> Generator[Path]:
    """A place to write a file to, which gets its name once nothing failed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder:
        with quiet():
            yield Path(folder) / path.name
        for file in Path(folder).iterdir():
            file.replace(path.parent / file.name)


def _check_plain(model: nn.Module) -> None:
    check_plain(model)
    gates = [name for name, m in model.named_modules() if isinstance(m, Gate)]
    if gates:
        raise ArgumentError(
            f"the model still has gates: {', '.join(f'`{name}`' for name in gates)}.\n"
            "Export what `pruner.finalize()` returns."
        )


def _trace(
    model: nn.Module, inputs: ExampleInputs, batch_dim: int | None
) -> ExportedProgram:
    shapes = ShapesCollection()
    if batch_dim is not None:
        inputs = resized(inputs, batch_dim, max(2, batch_size(inputs, batch_dim)))
        for tensor in tensor_leaves(inputs):
            shapes[tensor] = {batch_dim % tensor.ndim: Dim.DYNAMIC}
    args, kwargs = call_arguments(inputs)
    try:
        with mode(model, training=False), quiet(), torch.no_grad():
            dynamic = shapes.dynamic_shapes(model, args, kwargs)
            return torch.export.export(
                model, args, kwargs, dynamic_shapes=dynamic, strict=False
            )
    except Exception as error:
        raise TraceError(
            f"{type(model).__name__} cannot be exported: {error}\n"
            "If its forward needs one batch size, pass `batch_dim=None`."
        ) from error


def _forget_origin_(program: ExportedProgram) -> None:
    """Drop the example inputs, paths of source files, and classes of this library."""
    program.example_inputs = None
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.meta = {k: v for k, v in node.meta.items() if k in _NEEDED}
                stack = node.meta.get("nn_module_stack", {})
                stack |= {key: _anonymous(*entry) for key, entry in stack.items()}


def _anonymous(path: str, kind: str) -> tuple[str, str]:
    is_own = str(kind).startswith("diffprune.")
    return path, "torch.nn.modules.module.Module" if is_own else kind


def _runner(program: ExportedProgram) -> Run:
    module = program.module()

    def run(inputs: ExampleInputs) -> list[Tensor]:
        args, kwargs = call_arguments(inputs)
        with torch.no_grad():
            return tensor_leaves(module(*args, **kwargs))

    return run

"""A model as one graph of ATen operations that was compared with it. Knows no files."""

from typing import Final

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, ShapesCollection

from diffprune._export.check import Run, check_same, model_outputs
from diffprune._export.dynamic_batch import batch_size, resized, tensor_leaves
from diffprune._graph.trace import (
    ExampleInputs,
    call_arguments,
    check_plain,
    mode,
    quiet,
)
from diffprune.errors import ArgumentError, TraceError
from diffprune.gates import Gate

_NEEDED: Final = {"val", "tensor_meta", "nn_module_stack"}


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
    model_outputs(model, inputs)  # inputs it does not take are its own to explain
    program = _trace(model, inputs, batch_dim)
    _forget_origin_(program)
    check_same(model, runner(program), inputs, batch_dim)
    return program


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


def runner(program: ExportedProgram) -> Run:
    """Run a program the way a model is run."""
    module = program.module()

    def run(inputs: ExampleInputs) -> list[Tensor]:
        args, kwargs = call_arguments(inputs)
        with torch.no_grad():
            return tensor_leaves(module(*args, **kwargs))

    return run

"""A model as an ONNX file, checked in ONNX Runtime."""

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from diffprune._core.door import door
from diffprune._core.files import written_whole
from diffprune._core.leaves import leaves_of
from diffprune._export.checked_export import Run, check_same, checked_program
from diffprune._graph import ExampleInputs, quiet
from diffprune.errors import ExportError, MissingPackageError

_PACKAGES: Final = ("onnx", "onnxruntime", "onnxscript")
_LARGEST_MESSAGE: Final = 2_000_000_000
"""What fits into one ONNX file, in bytes; larger weights get a file of their own."""


@door
def to_onnx(
    model: nn.Module,
    example_inputs: ExampleInputs,
    path: str | os.PathLike[str],
    *,
    batch_dim: int | None = 0,
) -> Path:
    """Write the model, in eval mode, as an ONNX file that was checked.

    The file gets its name once ONNX Runtime has computed the same with it as the model,
    at three batch sizes. Weights of more than 2 GB are in a second file, `*.data`.

    Args:
        model: Without gates: what `Pruner.finalize`, `remove` or `compact` returned.
        example_inputs: As for `find_groups`.
        path: Where to write; an older file is replaced.
        batch_dim: The dimension of every input that may have any size, called `batch`
            in the file; None for a graph with fixed shapes.

    Returns:
        The path.

    Raises:
        MissingPackageError: If onnx, onnxruntime or onnxscript is not installed.
        ArgumentError: If the model has gates, or the inputs no such dimension.
        TraceError: If the model cannot be written down as one graph, or only for one
            batch size.
        ExportError: If ONNX has no such operation, or the file would compute something
            else; nothing was written.
    """
    _check_packages()
    program = checked_program(model, example_inputs, batch_dim)
    target = Path(path)
    with written_whole(target) as partial, quiet():
        _write(_converted(program), partial)
        run = _session(partial, _input_names(program))
        check_same(model, run, example_inputs, batch_dim)
    return target


def _check_packages() -> None:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"to write ONNX, {' and '.join(missing)} must be installed.\n"
            "Install everything with `pip install 'diffprune[export]'`."
        )


def _converted(program: ExportedProgram) -> Any:  # noqa: ANN401 - of an optional library
    try:
        with quiet():
            made = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=_input_names(program),
                output_names=_output_names(program),
            )
    except Exception as error:
        raise ExportError(
            f"the model cannot be written as ONNX: {_behind(error)}\n"
            "It may work for one batch size: `batch_dim=None`. `to_exported_program` "
            "may work, too. Nothing was written."
        ) from error
    assert made is not None  # noqa: S101 - only None when given a path
    return made.model_proto


def _behind(error: BaseException) -> str:
    """What went wrong, and what caused it: the first alone may name no operation."""
    cause = error.__cause__
    return f"{error}\n{_behind(cause)}" if cause else str(error)


def _input_names(program: ExportedProgram) -> list[str]:
    """A name for every tensor among the inputs, also for those that nothing reads."""
    specs = program.graph_signature.input_specs
    given = [s.arg for s in specs if s.kind is InputKind.USER_INPUT]
    return [arg.name for arg in given if isinstance(arg, TensorArgument)]


def _output_names(program: ExportedProgram) -> list[str]:
    """`output`, or what a model calls its outputs: `logits`, `boxes_0`."""
    form = program.call_spec.out_spec
    assert form is not None  # noqa: S101 - it was traced here
    specs = program.graph_signature.output_specs
    leaves = [s.arg for s in specs if s.kind is OutputKind.USER_OUTPUT]
    paths = pytree.tree_leaves_with_path(pytree.tree_unflatten(leaves, form))
    words = [
        "_".join(re.findall(r"\w+", pytree.keystr(path)))
        for path, leaf in paths
        if isinstance(leaf, TensorArgument)
    ]
    return [w if w and not w[0].isdigit() else f"output_{w}".strip("_") for w in words]


def _write(graph: Any, path: Path) -> None:  # noqa: ANN401 - of an optional library
    import onnx  # noqa: PLC0415 - optional

    _name_batch_(graph.graph)
    onnx.save_model(
        graph,
        path,
        save_as_external_data=graph.ByteSize() > _LARGEST_MESSAGE,
        location=f"{path.name}.data",
    )


def _name_batch_(graph: Any) -> None:  # noqa: ANN401 - of an optional library
    """Call the free dimension of the inputs `batch`, wherever it appears."""
    values = [*graph.input, *graph.output, *graph.value_info]
    dims = [dim for value in values for dim in value.type.tensor_type.shape.dim]
    inputs = [dim for value in graph.input for dim in value.type.tensor_type.shape.dim]
    symbols = {dim.dim_param for dim in inputs if dim.dim_param}
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, symbols))})\b")
    for dim in dims:
        if dim.dim_param:
            dim.dim_param = pattern.sub("batch", dim.dim_param)


def _session(path: Path, names: list[str]) -> Run:
    import onnxruntime  # noqa: PLC0415 - optional

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ExportError(
            f"ONNX Runtime does not run the model on a processor: {error}\n"
            "It has few operations for bfloat16 and float16: export `model.float()`, "
            "with inputs of that type. Nothing was written."
        ) from error
    read = {value.name for value in session.get_inputs()}

    def run(inputs: ExampleInputs) -> list[Tensor]:
        named = zip(names, leaves_of(Tensor, inputs), strict=True)
        arrays = {n: tensor.cpu().numpy() for n, tensor in named if n in read}
        return [torch.from_numpy(result) for result in session.run(None, arrays)]

    return run

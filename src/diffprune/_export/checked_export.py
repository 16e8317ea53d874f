"""Export a model as one graph of ATen operations, and compare the two.

A model and example inputs go in; a program comes out that computed the same at three
batch sizes. `check_same` compares whatever else runs such a program.
"""

import functools
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.utils import _pytree as pytree

from diffprune._core.leaves import leaves_of
from diffprune._graph import (
    ExampleInputs,
    answered_questions,
    call_arguments,
    check_accepts,
    check_plain,
    mode,
    own_arguments,
    quiet,
)
from diffprune._surgery.compare import compare
from diffprune.errors import ArgumentError, ExportError, TraceError
from diffprune.gates import BaseGate

Run: TypeAlias = Callable[[ExampleInputs], Sequence[Tensor]]
"""Takes inputs as a model does, returns the tensors that it would."""

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
    check_accepts(model, inputs)
    program = _trace(model, inputs, batch_dim)
    _forget_origin_(program)
    check_same(model, runner(program), inputs, batch_dim)
    return program


def _check_plain(model: nn.Module) -> None:
    check_plain(model)
    gates = [name for name, m in model.named_modules() if isinstance(m, BaseGate)]
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
        # Sizes 0 and 1 are taken for constants.
        inputs = resized(inputs, batch_dim, max(2, batch_size(inputs, batch_dim)))
        for tensor in leaves_of(Tensor, inputs):
            shapes[tensor] = {batch_dim % tensor.ndim: Dim.DYNAMIC}
    args, kwargs = call_arguments(inputs)
    try:
        with (
            mode(model, training=False),
            quiet(),
            answered_questions(),
            torch.no_grad(),
            _named_keywords(model, kwargs),
        ):
            dynamic = shapes.dynamic_shapes(model, args, kwargs)
            return torch.export.export(
                model, args, kwargs, dynamic_shapes=dynamic, strict=False
            )
    except Exception as error:
        raise TraceError(
            f"{type(model).__name__} cannot be exported: {error}\n"
            "If its forward needs one batch size, pass `batch_dim=None`; if another "
            "dimension counts the examples, pass that one, as `batch_dim=1`."
        ) from error


@contextmanager
def _named_keywords(model: nn.Module, kwargs: Mapping[str, object]) -> Generator[None]:
    """Let a forward that takes `**kwargs` name the ones that it is given.

    torch.export finds free dimensions only in arguments that a signature names.
    """
    forward, own = model.forward, vars(model).get("forward")
    signature = inspect.signature(forward)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    if len(named) == len(signature.parameters):
        yield
        return
    known = {parameter.name for parameter in named}
    named += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
        for name in kwargs
        if name not in known
    ]

    @functools.wraps(forward)
    def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the model's own
        return forward(*args, **kwargs)

    called.__signature__ = signature.replace(parameters=named)  # pyright: ignore[reportAttributeAccessIssue] - what `inspect` looks at
    vars(model)["forward"] = called
    try:
        yield
    finally:
        del vars(model)["forward"]
        if own is not None:
            vars(model)["forward"] = own


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
        args, kwargs = own_arguments(inputs)
        with torch.no_grad():
            return leaves_of(Tensor, module(*args, **kwargs))

    return run


def check_same(
    model: nn.Module, run: Run, inputs: ExampleInputs, batch_dim: int | None
) -> None:
    """Compare with the model in eval mode: on the inputs, on one example, on one more.

    Examples that the model itself does not take so many of are not compared.

    Raises:
        ExportError: If an output differs, relative to its largest entry.
    """
    for trial in _trials(inputs, batch_dim):
        try:
            expected = model_outputs(model, trial)
        except Exception:
            if trial is inputs:
                raise
            continue
        if not expected:
            raise ArgumentError(
                f"the model, a {type(model).__name__}, returns no tensor, so there is "
                "nothing to export.\nLet its forward return its outputs."
            )
        shapes = ", ".join(str(tuple(t.shape)) for t in leaves_of(Tensor, trial))
        try:
            actual = run(trial)
        except Exception as error:
            raise ExportError(
                "what was exported of the model does not run on inputs of shape "
                f"{shapes}: {error}\nIf the batch size has to be fixed, pass "
                "`batch_dim=None`. Nothing was written."
            ) from error
        try:
            _compare(expected, actual, shapes)
        except ExportError as error:
            if compare(expected, model_outputs(model, trial)).is_equal:
                raise
            raise ExportError(
                "the model returns random numbers in eval mode, so what is exported "
                "cannot be compared with it. Make it deterministic there; "
                "`F.dropout(x, p)` for instance needs `training=self.training`. "
                "Nothing was written."
            ) from error


def model_outputs(model: nn.Module, inputs: ExampleInputs) -> list[Tensor]:
    """All tensors a model returns in eval mode, flattened."""
    args, kwargs = own_arguments(inputs)
    with mode(model, training=False), torch.no_grad():
        return leaves_of(Tensor, model(*args, **kwargs))


def _trials(inputs: ExampleInputs, batch_dim: int | None) -> list[Any]:
    if batch_dim is None:
        return [inputs]
    size = batch_size(inputs, batch_dim)
    others = dict.fromkeys(other for other in (1, size + 1) if other != size)
    return [inputs, *(resized(inputs, batch_dim, other) for other in others)]


def batch_size(inputs: ExampleInputs, dim: int) -> int:
    """Number of examples in the inputs.

    Raises:
        ArgumentError: If their tensors do not agree on it.
    """
    shapes = [tuple(tensor.shape) for tensor in leaves_of(Tensor, inputs)]
    sizes = {shape[dim] if -len(shape) <= dim < len(shape) else 0 for shape in shapes}
    if len(sizes) != 1 or 0 in sizes:
        raise ArgumentError(
            f"the inputs, of shapes {', '.join(map(str, shapes)) or 'none'}, do not "
            f"have a batch dimension {dim} in common.\n"
            "For a graph with fixed shapes pass `batch_dim=None`."
        )
    return sizes.pop()


def resized(inputs: ExampleInputs, dim: int, size: int) -> Any:  # noqa: ANN401 - as nested as given
    """The inputs with another number of examples, repeated or left out in turn.

    Examples:
        >>> resized(torch.tensor([[1, 2], [3, 4]]), 0, 3).tolist()
        [[1, 2], [3, 4], [1, 2]]
    """

    def resize(x: Tensor) -> Tensor:
        turns = torch.arange(size, device=x.device) % x.shape[dim]
        return x.index_select(dim, turns)

    return pytree.tree_map_only(Tensor, resize, inputs)


def _compare(expected: list[Tensor], actual: Sequence[Tensor], shapes: str) -> None:
    if len(expected) != len(actual):
        raise ExportError(
            f"what was exported returns {len(actual)} tensors, the model "
            f"{len(expected)}. Nothing was written."
        )
    for one, other in zip(expected, actual, strict=True):
        if one.dtype != other.dtype or one.shape != other.shape:
            raise ExportError(
                f"what was exported returns {_kind(other)} where the model returns "
                f"{_kind(one)}, on inputs of shape {shapes}. Nothing was written."
            )
    here = [tensor.cpu() for tensor in actual]
    found = compare([t.cpu() for t in expected], here, elsewhere=True)
    if not found.is_equal:
        raise ExportError(
            f"what was exported computes something else on inputs of shape {shapes}: "
            f"{found.certificate}.\nNothing was written."
        )


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"

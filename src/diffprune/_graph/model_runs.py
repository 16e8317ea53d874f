"""Run a model as it was written, and leave it as it was.

Whatever a forward pass draws, counts or keeps is put back, and nothing that a framework
has put around the model changes what it computes.
"""

import inspect
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from diffprune._core.arguments import check
from diffprune._core.leaves import leaves_of
from diffprune._core.randomness import torch_forked
from diffprune._core.recomputation import without_recomputing
from diffprune._core.snapshot import Snapshot
from diffprune.errors import ArgumentError

ExampleInputs: TypeAlias = Tensor | tuple[Any, ...] | Mapping[str, Any]


def call_arguments(inputs: ExampleInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for the model."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def own_arguments(inputs: ExampleInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copies of the arguments, for a model that may write into what it is given."""
    copies = WeakTensorKeyDictionary()  # a tensor that is given twice stays one

    def copied(given: Tensor) -> Tensor:
        if given not in copies:
            copy = given.detach().clone()
            copies[given] = copy.requires_grad_(given.requires_grad)
        return copies[given]

    return pytree.tree_map_only(Tensor, copied, call_arguments(inputs))


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Generator[None]:
    """Put every module in train or eval mode, and back as it was."""
    before = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, was_training in before.items():
            module.training = was_training


@contextmanager
def untouched(model: nn.Module) -> Generator[None]:
    """Put back whatever modules hold: what a forward keeps of a trace is no number."""
    before = Snapshot([model])
    try:
        yield
    finally:
        before.restore_()


@contextmanager
def unchanged(model: nn.Module) -> Generator[dict[Tensor, Tensor]]:
    """Put back, too, what forward passes write into tensors, such as counters.

    The block gets those tensors with their values; what it takes out stays changed.

    Examples:
        >>> norm = nn.BatchNorm1d(2)
        >>> with unchanged(norm):
        ...     _ = norm(torch.rand(3, 2))
        >>> norm.num_batches_tracked.item()
        0
    """
    tensors = [*model.buffers(), *(weight for _, weight in _normalised_in_place(model))]
    written = {tensor: tensor.detach().clone() for tensor in tensors}
    try:
        with untouched(model):
            yield written
    finally:
        with torch.no_grad():
            for tensor, value in written.items():
                if not torch.equal(tensor, value):
                    tensor.copy_(value)


def _normalised_in_place(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Weights that a forward pass changes: embeddings with a `max_norm`."""
    for path, module in model.named_modules():
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag):
            continue
        if module.max_norm is not None:
            yield f"{path}.weight" if path else "weight", module.weight


@contextmanager
def as_written(model: nn.Module) -> Generator[None]:
    """Let a model compute in its own precision, whatever surrounds it.

    Autocast is off, and a `forward` that a framework has put around the one of the
    model's class (mixed precision does) is set aside. Nothing is computed twice.
    """
    devices = {"cpu", *(p.device.type for p in model.parameters())}
    around = _wrapped_forward(model)
    with without_recomputing(), ExitStack() as stack:
        for device in sorted(devices):
            stack.enter_context(torch.autocast(device, enabled=False))
        if around is not None:
            stack.callback(vars(model).update, forward=around)
            del vars(model)["forward"]
        yield


def _wrapped_forward(model: nn.Module) -> object | None:
    """What a framework calls instead of the model's own forward, and in the end does.

    Layers that are fetched from elsewhere when they run have such a forward, too; that
    one has to stay.
    """
    around = vars(model).get("forward")
    if around is None or hasattr(model, "_hf_hook"):
        return None
    inside: Any = inspect.unwrap(around)
    own = getattr(inside, "__func__", inside) is type(model).forward
    return around if own else None


def check_accepts(
    model: nn.Module,
    inputs: ExampleInputs,
    what: str = "the example inputs",
    who: str = "the model",
) -> None:
    """Refuse inputs that the model, in eval mode, cannot be run on.

    Args:
        model: It runs once; its buffers and the random state stay as they are.
        inputs: A tensor, a tuple, or a dict of keyword arguments.
        what: What messages call them.
        who: What messages call the model.

    Raises:
        ArgumentError: If it raises something, or there is not one example to run it on.
    """
    check(what, ExampleInputs, inputs)
    leaves = leaves_of(Tensor, inputs)
    if leaves and not any(leaf.numel() for leaf in leaves):
        raise ArgumentError(
            f"{what} hold no numbers: a model is looked at, and compared, on some.\n"
            "Pass at least one example."
        )
    if odd := [leaf for leaf in leaves if leaf.layout is not torch.strided]:
        raise ArgumentError(
            f"{what} hold a tensor stored as {odd[0].layout}, and outputs are "
            "compared on dense ones.\nPass `x.to_dense()`."
        )
    args, kwargs = own_arguments(inputs)
    written = {name: buffer.clone() for name, buffer in model.named_buffers()}
    written |= {n: p.detach().clone() for n, p in _normalised_in_place(model)}
    with (
        accepting(what, who),
        untouched(model),
        mode(model, training=False),
        as_written(model),
        torch_forked(),
        torch.no_grad(),
    ):
        functional_call(model, written, args, kwargs)


@contextmanager
def accepting(what: str, who: str = "the model") -> Generator[None]:
    """Whatever a model raises in this block is said to be about its inputs.

    Raises:
        ArgumentError: If it raises something.

    Examples:
        >>> with accepting("batch 3"):
        ...     nn.Linear(2, 3)(torch.ones(1))
        Traceback (most recent call last):
        ...
        diffprune.errors.ArgumentError: the model does not accept batch 3: RuntimeErr...
    """
    try:
        yield
    except Exception as error:
        raise ArgumentError(
            f"{who} does not accept {what}: "
            f"{type(error).__name__}: {error}\nPass a tensor, a tuple of "
            "positional arguments, or a dict of keyword arguments that it takes."
        ) from error

"""One execution of a model as a graph of ATen calls.

Traces with `torch.export` (non-strict): high-level ops, parameters by name, shapes and
module paths on every node, and the origin of integers from `sizes`.
"""

import io
import logging
import sys
import threading
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch import fx, nn
from torch._dynamo.eval_frame import OptimizedModule
from torch._ops import OpOverload
from torch.export.graph_signature import InputKind
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from diffprune._core.leaves import leaves_of
from diffprune._core.modules import check_can_change, check_has_values
from diffprune._core.randomness import torch_forked
from diffprune._core.user_warnings import folder_of
from diffprune._graph.export_settings import answered_questions, lean_export
from diffprune._graph.int_sources import SizeLog
from diffprune._graph.int_tracking import tracked_sizes
from diffprune._graph.model_runs import (
    ExampleInputs,
    as_written,
    call_arguments,
    check_accepts,
    mode,
    untouched,
)
from diffprune._graph.narrow_attention import narrow
from diffprune._graph.trace_advice import explained
from diffprune._graph.value_lengths import settle_lengths_
from diffprune.errors import ArgumentError, TraceError

_EXPORTING: Final = threading.RLock()
# Code of which all is known that it does with the mode: torch's own layers, and ours.
_KNOWN_IN_TRAINING: Final = (
    folder_of(nn.modules.__file__),
    folder_of(__file__),
)


@dataclass(frozen=True)
class Trace:
    """A graph, which placeholders are parameters or buffers, and how ints were used."""

    graph: fx.Graph
    owner: fx.GraphModule
    tensor_names: Mapping[str, str]
    sizes: SizeLog

    @property
    def read(self) -> frozenset[str]:
        """Names of the parameters and buffers that some op reads."""
        used = (node for node in self._tensors() if node.users)
        return frozenset(self.tensor_names[node.name] for node in used)

    @property
    def written(self) -> frozenset[str]:
        """Names of the parameters and buffers that some op changes, `.data` or not."""
        nodes = (node for node in self.graph.nodes if _writes(node.target))
        bases = (_seen_through(node.args[0]).name for node in nodes)
        return frozenset(self.tensor_names[n] for n in bases if n in self.tensor_names)

    @property
    def devices(self) -> frozenset[torch.device]:
        """Where the parameters and buffers of the model are."""
        return frozenset(node.meta["val"].device for node in self._tensors())

    def _tensors(self) -> Iterator[fx.Node]:
        for node in self.graph.nodes:
            if node.op == "placeholder" and node.name in self.tensor_names:
                yield node


def _writes(target: object) -> bool:
    """Whether an op changes its first argument, or asks if it may have other data."""
    asks = torch.ops.aten._has_compatible_shallow_copy_type.default  # noqa: SLF001 - no public name
    return isinstance(target, OpOverload) and (
        target._schema.is_mutable or target is asks  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no public name
    )


def _seen_through(node: fx.Node) -> fx.Node:
    """What a tensor is a part of that remembers no gradient, such as `x.data`."""
    while node.target is torch.ops.aten.detach.default:
        node = cast("fx.Node", node.args[0])
    return node


def trace(model: nn.Module, inputs: ExampleInputs) -> tuple[Trace, ...]:
    """Trace in eval mode; in train mode too when the model can do other things there.

    An auxiliary head that only runs in training ties its width to the trunk's, and
    noise of a fixed width fixes it; both would be missed otherwise.

    Raises:
        ArgumentError: If the model is wrapped, unmaterialised, rejects the inputs, or
            returns nothing.
        TraceError: If its control flow depends on values.
    """
    check_plain(model)
    check_accepts(model, inputs)
    with _EXPORTING, mode_readers() as readers:
        usual = _trace(model, inputs, training=False)
    _check_returns(model, usual)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    read = {parameters.get(name) for name in usual.read}  # a tied one by any name
    is_all_read = read.issuperset(parameters.values())
    has_moods = any(m in readers or _is_switched(m) for m in model.modules())
    if is_all_read and not has_moods:
        return (usual,)
    # What only runs in training may branch at random there; it is then unread, and
    # its own parameters stay whole.
    with suppress(TraceError, ArgumentError):
        training = _trace(model, inputs, training=True)
        if not _is_alike(usual, training):
            return usual, training
    return (usual,)


def _check_returns(model: nn.Module, found: Trace) -> None:
    """Refuse a model without outputs: whatever is removed, they would be the same."""
    if not leaves_of(fx.Node, found.graph.output_node().args):
        raise ArgumentError(
            f"the model, a {type(model).__name__}, returns no tensor in eval mode, so "
            "nothing shows what it computes.\nLet its forward return its outputs."
        )


@contextmanager
def mode_readers() -> Generator[set[nn.Module]]:
    """Note the modules whose `training` is looked at while this is open.

    Not what torch's own layers do with it, which is known.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
        >>> with mode_readers() as readers:
        ...     _ = model(torch.ones(1, 2)), model[0].training
        >>> readers
        {Linear(in_features=2, out_features=2, bias=True)}
    """
    found = set[nn.Module]()

    def read(module: nn.Module) -> bool:
        reader = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - its only name
        if not reader.startswith(_KNOWN_IN_TRAINING):
            found.add(module)
        try:
            return vars(module)["training"]
        except KeyError:
            raise AttributeError("training") from None  # a scripted module has its own

    def write(module: nn.Module, value: bool) -> None:  # noqa: FBT001 - a setter's form
        vars(module)["training"] = value

    # Every module has the attribute itself; a property of the class goes before it.
    nn.Module.training = property(read, write)  # pyright: ignore[reportAttributeAccessIssue] - for a while
    try:
        yield found
    finally:
        del nn.Module.training


def _is_switched(module: nn.Module) -> bool:
    """Whether a class does more than set the flag when its mode changes."""
    kind = type(module)
    return kind.train is not nn.Module.train or kind.eval is not nn.Module.eval


def _is_alike(one: Trace, other: Trace) -> bool:
    """Whether two traces are the same calls, apart from flags such as `training`."""
    nodes = list(one.graph.nodes), list(other.graph.nodes)
    uses = [(len(log.fixed), len(log.equal)) for log in (one.sizes, other.sizes)]
    if len(nodes[0]) != len(nodes[1]) or uses[0] != uses[1]:
        return False
    partner = dict(zip(*nodes, strict=True))
    return all(_is_alike_call(node, partner) for node in nodes[0])


def _is_alike_call(node: fx.Node, partner: Mapping[fx.Node, fx.Node]) -> bool:
    same = partner[node]
    if (node.op, node.target) != (same.op, same.target):
        return node.op == same.op == "placeholder"
    pairs = zip(
        *(pytree.tree_leaves((n.args, n.kwargs)) for n in (node, same)), strict=False
    )
    return len(node.all_input_nodes) == len(same.all_input_nodes) and all(
        partner.get(a, a) == b
        if isinstance(a, fx.Node)
        else isinstance(a, bool) or a == b
        for a, b in pairs
    )


def _check_unscripted(model: nn.Module) -> None:
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            which = f"`{path}`" if path else "the model"
            raise ArgumentError(
                f"{which} was compiled by `torch.jit`, whose code is for the old "
                "shapes.\nPass the model as it was before, and script the result."
            )


def _check_uncompiled(model: nn.Module) -> None:
    for path, module in model.named_modules():
        if isinstance(module, OptimizedModule):
            raise ArgumentError(
                f"`{path}` was made by `torch.compile`, whose code is for the old "
                f"shapes.\nPut the module inside it, `{path}._orig_mod`, in its place, "
                "and compile the whole model after the pruner is made."
            )


def check_plain(model: nn.Module) -> None:
    """Refuse wrappers and meta tensors, naming what to pass instead."""
    if isinstance(model, DistributedDataParallel | nn.DataParallel):
        raise ArgumentError(
            f"the model is wrapped in {type(model).__name__}, which knows its shapes.\n"
            "Pass the module inside it, `model.module`, and wrap it again after that."
        )
    if isinstance(model, OptimizedModule):
        raise ArgumentError(
            "the model was made by `torch.compile`, whose code is for the old shapes.\n"
            "Pass the module inside it, `model._orig_mod`, and compile the result."
        )
    _check_whole(model)
    _check_unscripted(model)
    _check_uncompiled(model)
    check_has_values(model)
    check_can_change(model)


def _check_whole(model: nn.Module) -> None:
    """Refuse a model that is divided among processes; who has none imports nothing."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and any(
        isinstance(module, fsdp.FSDPModule) for module in model.modules()
    ):
        raise ArgumentError(
            "`fully_shard` has divided the model, and no process knows its shapes.\n"
            "Make the pruner first, and then let it divide the model: "
            "`pruner.shard_(fully_shard)`."
        )


def _trace(model: nn.Module, inputs: ExampleInputs, *, training: bool) -> Trace:
    args, kwargs = call_arguments(inputs)
    run = "train" if training else "eval"
    try:
        with (
            quiet(),
            untouched(model),
            mode(model, training=training),
            as_written(model),
            narrow(model),
            tracked_sizes(model, run) as log,
            lean_export(),
            answered_questions(),
            torch.no_grad(),
        ):
            exported = torch.export.export(model, args, kwargs, strict=False)
            with torch_forked():
                settle_lengths_(exported, (args, kwargs))
    except Exception as error:
        raise explained(model, error) from error
    return _read(exported, log)


@contextmanager
def quiet() -> Generator[None]:
    """Say nothing about exporting, which nobody asked for; failures are explained.

    One thread at a time: what is silenced here, and what torch changes while it
    exports, belongs to the whole process.
    """
    with _EXPORTING, _silence():
        yield


@contextmanager
def _silence() -> Generator[None]:
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        # torch prints the graph of a trace that failed.
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _read(exported: torch.export.ExportedProgram, log: SizeLog) -> Trace:
    kinds = (InputKind.PARAMETER, InputKind.BUFFER)
    names = {
        spec.arg.name: str(spec.target)
        for spec in exported.graph_signature.input_specs
        if spec.kind in kinds
    }
    return Trace(exported.graph, exported.graph_module, names, log)

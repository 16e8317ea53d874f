"""One execution of a model as a graph of ATen calls.

Traces with `torch.export` (non-strict): high-level ops, parameters by name, shapes and
module paths on every node, and the origin of integers from `sizes`.
"""

import inspect
import io
import logging
import sys
import threading
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import torch
from torch import Tensor, fx, nn
from torch._dynamo.eval_frame import OptimizedModule
from torch._ops import OpOverload
from torch.export.graph_signature import InputKind
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from diffprune._core.arguments import check
from diffprune._core.modules import check_can_change, check_has_values
from diffprune._core.randomness import torch_forked
from diffprune._core.recomputation import without_recomputing
from diffprune._core.snapshot import Snapshot
from diffprune._graph.export_settings import answered_questions, lean_export
from diffprune._graph.int_tracking import SizeLog, tracked_sizes
from diffprune._graph.lines import line_of_failure
from diffprune._graph.narrow_attention import narrow
from diffprune._graph.value_lengths import settle_lengths_
from diffprune.errors import ArgumentError, TraceError

ExampleInputs: TypeAlias = Tensor | tuple[Any, ...] | Mapping[str, Any]


_EXPORTING: Final = threading.RLock()
# Code of which all is known that it does with the mode: torch's own layers, and ours.
_KNOWN_IN_TRAINING: Final = (
    str(Path(nn.modules.__file__).parent),
    str(Path(__file__).parent),
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
    outputs = pytree.tree_leaves(found.graph.output_node().args)
    if not any(isinstance(leaf, fx.Node) for leaf in outputs):
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
        raise _explain(model, error) from error
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
    leaves = [x for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor)]
    if leaves and not any(leaf.numel() for leaf in leaves):
        raise ArgumentError(
            f"{what} hold no numbers: a model is looked at, and compared, on some.\n"
            "Pass at least one example."
        )
    if odd := [leaf for leaf in leaves if leaf.layout is not torch.strided]:
        raise ArgumentError(
            f"{what} hold a tensor stored as {odd[0].layout}, and outputs are "
            " compared on dense ones.\nPass `x.to_dense()`."
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


def _normalised_in_place(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Weights that a forward pass changes: embeddings with a `max_norm`."""
    for path, module in model.named_modules():
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag):
            continue
        if module.max_norm is not None:
            yield f"{path}.weight" if path else "weight", module.weight


def _explain(model: nn.Module, failure: Exception) -> TraceError:
    """Say what to do about a model that runs and cannot be traced."""
    said = str(failure)
    usual = _EXPERTS if _has_eager_experts(model) else _BRANCHES
    advice = next((hint for words, hint in _HINTS.items() if words in said), usual)
    line = line_of_failure(failure)
    place = f" ({line})" if line else ""
    return TraceError(
        f"{type(model).__name__} cannot be traced: {_first_line(failure)}{place}\n"
        f"{advice}"
    )


def _has_eager_experts(model: nn.Module) -> bool:
    """Whether a model of transformers visits its experts one by one."""
    experts = (module for module in model.modules() if hasattr(module, "_apply_gate"))
    configs = (getattr(module, "config", None) for module in experts)
    return any(getattr(c, "_experts_implementation", "") == "eager" for c in configs)


_EXPERTS: Final = (
    "Its experts run one by one, those alone that some token chose. Let them run at "
    'once while it is traced and cut: `model.set_experts_implementation("batched_mm")`.'
)
_BRANCHES: Final = (
    "Its forward probably branches on the values of a tensor. If that is only a check, "
    "leave it out here: `if not torch.compiler.is_exporting(): ...`. If not, prune the "
    "submodules that do not branch, with their own example inputs."
)
_SIZES: Final = (
    "A size in its forward is computed from the values of a tensor, as "
    "`pack_padded_sequence` does. Pad without packing while the model is traced, "
    "or prune the submodules around it, with their own example inputs."
)
_DERIVATIVES: Final = (
    "Its forward calls `torch.func` to differentiate a part of itself. Prune that "
    "part, with its own example inputs; a gated one may be differentiated."
)
_HINTS: Final[Mapping[str, str]] = {
    "cache_utils": (
        "Its forward returns a cache, for generating text. Leave it out of what is "
        'looked at: `example_inputs={..., "use_cache": False}`.'
    ),
    "not a known type": (
        "Its forward returns an object that torch does not look into. If it is a "
        "dataclass, make it known: `torch.export.register_dataclass(TheClass)`. If "
        "not, as with a distribution, return its tensors in a tuple or a dict, and "
        "make the object of them outside."
    ),
    "functorch": _DERIVATIVES,
    "object has no attribute 'constant'": _DERIVATIVES,
    "_ctc_loss": (
        "Its forward computes a CTC loss, whose size depends on values. Return the log "
        "probabilities where it is traced, as without targets, and compute it outside."
    ),
    "but got FakeTensor": _SIZES,
    "Could not extract specialized integer": _SIZES,
    "fake tensor in the exported program": (
        "Its forward calls `torch.autograd.grad`, or `backward`. Prune the submodules "
        "that do not, with their own example inputs."
    ),
    "higher order operator": (
        "Its forward calls `torch.cond` or a function like it, which chooses what runs "
        "by the values of a tensor. Prune the submodules, with their own example "
        "inputs."
    ),
}


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), repr(error))

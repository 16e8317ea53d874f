"""Measure a run's networks on this machine: seconds, memory, bytes.

*dense* is the network at full width, *gated* the same with its gates, which is what
methods that only mask leave, and *small* is what came out.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from diffprune._core.files import stored_size
from diffprune._export import to_onnx
from diffprune.lab.interleaved import Call, one_thread, time_in_turns
from diffprune.lab.runs.rebuild import gated_model, rebuild

EAGER: Final = "eager"
COMPILED: Final = "torch.compile"
ONNX: Final = "ONNX Runtime"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One network in one engine.

    Attributes:
        network: `dense`, `gated` or `small`.
        engine: What runs it.
        seconds: A forward pass, on one thread.
        ratio: That, relative to the dense network in PyTorch, measured in turn.
        quartiles: Of the ratio, over the rounds.
        memory: Bytes that the weights and a forward pass hold at most, if known.
        file_size: Bytes of the weights as safetensors, or of the ONNX file.
    """

    network: str
    engine: str
    seconds: float
    ratio: float
    quartiles: tuple[float, float]
    memory: int | None
    file_size: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Candidate:
    network: str
    engine: str
    call: Call
    memory: int | None
    file_size: int


def bench(
    folder: Path,
    *,
    task: str | None = None,
    trust: bool = False,
    batch: int = 1,
    rounds: int = 31,
    compiled: bool = False,
    onnx: bool = True,
) -> list[Measured]:
    """Measure the networks of a finished run, all in turn; the dense one comes first.

    Args:
        folder: Of the run.
        task: Where its task is written, if not where the run says.
        trust: Whether to run code outside the present folder if the run names it.
        batch: Examples per forward pass.
        rounds: How often each is measured.
        compiled: Whether to measure `torch.compile` too, which takes a while to start.
        onnx: Whether to measure ONNX Runtime too, if it is installed.

    Raises:
        ArgumentError: If the run is unfinished or damaged, or its task unknown.
    """
    models = rebuild(folder, task, trust=trust)
    networks = {"dense": models.dense, "small": models.small}
    gated = gated_model(folder, task, trust=trust)
    if gated is not None:
        networks = {"dense": models.dense, "gated": gated, "small": models.small}
    inputs = models.inputs[torch.arange(batch) % len(models.inputs)]
    with tempfile.TemporaryDirectory() as scratch, one_thread(), torch.no_grad():
        ready = list(_in_pytorch(networks, inputs, compiled=compiled))
        if onnx and find_spec("onnxruntime") and find_spec("onnxscript"):
            ready += _in_onnx(networks, inputs, Path(scratch))
        calls = {f"{c.network} {c.engine}": c.call for c in ready}
        times = time_in_turns(calls, rounds=rounds)
    return [
        Measured(
            network=candidate.network,
            engine=candidate.engine,
            **asdict(times[f"{candidate.network} {candidate.engine}"]),
            memory=candidate.memory,
            file_size=candidate.file_size,
        )
        for candidate in ready
    ]


def _in_pytorch(
    networks: Mapping[str, nn.Module], inputs: Tensor, *, compiled: bool
) -> Iterator[_Candidate]:
    for name, model in networks.items():
        size = stored_size(model.eval().state_dict())
        memory = _peak_memory(model, inputs)
        yield _Candidate(name, EAGER, _bound(model, inputs), memory, size)
    for name, model in networks.items() if compiled else ():
        call = _bound(torch.compile(model), inputs)
        yield _Candidate(name, COMPILED, call, None, stored_size(model.state_dict()))


def _in_onnx(
    networks: Mapping[str, nn.Module], inputs: Tensor, scratch: Path
) -> Iterator[_Candidate]:
    """Without the gated network: a gate is no ONNX operation."""
    for name in ("dense", "small"):
        path = to_onnx(networks[name], inputs, scratch / f"{name}.onnx")
        size = path.stat().st_size
        yield _Candidate(name, ONNX, _session(path, inputs), None, size)


def _bound(model: Callable[[Tensor], object], inputs: Tensor) -> Call:
    return lambda: model(inputs)


def _session(path: Path, inputs: Tensor) -> Call:
    import onnxruntime  # noqa: PLC0415 - optional

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: inputs.numpy()}
    return lambda: session.run(None, feed)


def _peak_memory(model: nn.Module, inputs: Tensor) -> int:
    model(inputs)  # what is made once is not counted
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model(inputs)
    assert profiler.profiler is not None  # noqa: S101 - it has run
    results = profiler.profiler.kineto_results
    assert results is not None  # noqa: S101 - it has run
    events: list[Any] = [
        event for event in results.events() if event.name() == "[memory]"
    ]
    held = peak = sum(t.nbytes for t in model.state_dict().values())
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak

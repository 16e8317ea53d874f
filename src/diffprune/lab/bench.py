"""Measure a run's networks on this machine: seconds, memory, bytes.

*dense* is the network at full width, *gated* the same with its gates, which is what
methods that only mask leave, and *small* is what came out.
"""

import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from diffprune._core.interleaved import Call
from diffprune._costs.benchmark import Candidate, Measured, in_pytorch, measure
from diffprune._export import to_onnx
from diffprune.lab.runs.rebuild import gated_model, rebuild

ONNX: Final = "ONNX Runtime"


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
    for network in networks.values():
        network.eval()
    with tempfile.TemporaryDirectory() as scratch:
        ready = list(in_pytorch(networks, inputs, compiled=compiled))
        if onnx and find_spec("onnxruntime") and find_spec("onnxscript"):
            ready += _in_onnx(networks, inputs, Path(scratch))
        return measure(ready, rounds=rounds)


def _in_onnx(
    networks: Mapping[str, nn.Module], inputs: Tensor, scratch: Path
) -> Iterator[Candidate]:
    """Without the gated network: a gate is no ONNX operation."""
    for name in ("dense", "small"):
        path = to_onnx(networks[name], inputs, scratch / f"{name}.onnx")
        size = path.stat().st_size
        yield Candidate(name, ONNX, _session(path, inputs), None, size)


def _session(path: Path, inputs: Tensor) -> Call:
    import onnxruntime  # noqa: PLC0415 - optional

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: inputs.numpy()}
    return lambda: session.run(None, feed)

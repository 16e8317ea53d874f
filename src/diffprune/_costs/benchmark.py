"""Measure networks against each other: seconds, memory, bytes, and what is saved."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from diffprune._core.door import door
from diffprune._core.interleaved import Call, one_thread, time_in_turns
from diffprune._core.shown import Shown
from diffprune._core.tensor_files import stored_size
from diffprune._core.types import Count
from diffprune._graph import ExampleInputs, check_accepts, mode, own_arguments

EAGER: Final = "eager"
COMPILED: Final = "torch.compile"
ROUNDS: Final = 31


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One network in one engine.

    Attributes:
        network: What it is called; the first one is what others are compared with.
        engine: What runs it.
        seconds: A forward pass, on one thread of the processor.
        ratio: That, relative to the first network in PyTorch, measured in turn.
        quartiles: Of the ratio, over the rounds.
        memory: Bytes that the weights and a forward pass hold at most, if known.
        file_size: Bytes of the weights as safetensors, or of another file.
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

    def cells(self) -> tuple[str, ...]:
        """Engine, milliseconds, speed, its quartiles, memory and size, as text."""
        low, high = self.quartiles
        return (
            self.engine,
            f"{1e3 * self.seconds:.3g}",
            f"{1 / self.ratio:.2f}x",
            f"{1 / high:.2f}-{1 / low:.2f}",
            "" if self.memory is None else in_bytes(self.memory),
            in_bytes(self.file_size),
        )


HEADER: Final = ("network", "engine", "ms", "speed", "quartiles", "memory", "file")


@dataclass(frozen=True)
class Benchmark:
    """Networks that were measured in turn; print it, or look at it in a notebook."""

    measured: tuple[Measured, ...]

    def __str__(self) -> str:
        return str(self._shown())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self._shown()._repr_html_()

    def _shown(self) -> Shown:
        rows = [(one.network, *one.cells()) for one in self.measured]
        return Shown([HEADER, *rows], numbers=range(2, len(HEADER)))


@dataclass(frozen=True)
class Candidate:
    """A network that is ready to run, and what is known of it before it does."""

    network: str
    engine: str
    call: Call
    memory: int | None
    file_size: int


@door
def benchmark(
    dense: nn.Module,
    small: nn.Module,
    example_inputs: ExampleInputs,
    *,
    compiled: bool = False,
    rounds: Count = ROUNDS,
) -> Benchmark:
    """Measure how much faster, leaner and smaller one network is than another.

    Both take turns on one thread of the processor, so the ratio holds on a busy
    machine. *Speed* says how many times as fast as `dense` a network is.

    Args:
        dense: The network to compare with, in eval mode while it is measured.
        small: The other one.
        example_inputs: A tensor, a tuple, or a dict of keyword arguments.
        compiled: Whether to measure `torch.compile` too, which takes a while to start.
        rounds: How often each is measured.

    Examples:
        >>> dense, small = nn.Linear(64, 64), nn.Linear(64, 8)
        >>> found = benchmark(dense, small, torch.rand(2, 64), rounds=3)
        >>> [one.network for one in found.measured]
        ['dense', 'small']
    """
    networks = {"dense": dense, "small": small}
    for name, network in networks.items():
        check_accepts(network, example_inputs, who=f"the network given as `{name}`")
    with mode(dense, training=False), mode(small, training=False):
        ready = [*in_pytorch(networks, example_inputs, compiled=compiled)]
        return Benchmark(tuple(measure(ready, rounds=rounds)))


def measure(ready: Sequence[Candidate], *, rounds: int) -> list[Measured]:
    """Run candidates in turn, the one to compare with first."""
    calls = {f"{c.network} {c.engine}": c.call for c in ready}
    with torch.no_grad():
        times = time_in_turns(calls, rounds=rounds)
    return [
        Measured(
            network=one.network,
            engine=one.engine,
            **asdict(times[f"{one.network} {one.engine}"]),
            memory=one.memory,
            file_size=one.file_size,
        )
        for one in ready
    ]


def in_pytorch(
    networks: Mapping[str, nn.Module], inputs: ExampleInputs, *, compiled: bool
) -> Iterator[Candidate]:
    """Networks as PyTorch runs them, and compiled if that is asked for."""
    for name, model in networks.items():
        size, call = stored_size(model.state_dict()), bound(model, inputs)
        yield Candidate(name, EAGER, call, _peak_memory(model, call), size)
    for name, model in networks.items() if compiled else ():
        call = bound(torch.compile(model), inputs)
        yield Candidate(name, COMPILED, call, None, stored_size(model.state_dict()))


def bound(model: Callable[..., object], inputs: ExampleInputs) -> Call:
    """A call of the model with these inputs."""
    args, kwargs = own_arguments(inputs)
    return lambda: model(*args, **kwargs)


def in_bytes(count: int) -> str:
    """A number of bytes as people write it.

    Examples:
        >>> in_bytes(999), in_bytes(12_345), in_bytes(2_500_000)
        ('999 B', '12.3 kB', '2.5 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _peak_memory(model: nn.Module, call: Call) -> int:
    # Torch's profiler looks at this when it is first used, and talks without it.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with one_thread(), torch.no_grad():
        call()  # what is made once is not counted
        with profile(
            activities=[ProfilerActivity.CPU], profile_memory=True
        ) as profiler:
            call()
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

"""What gates are worth during a forward pass, and when a part of it runs again.

Gates are evaluated when a pass of the whole model begins, and all places see the same
values. Gradient checkpointing runs parts of the model once more, during backward and
after their pass has ended. Gates are then evaluated anew, with the noise that the pass
had: a part that runs without gradients at first (`use_reentrant=True`) needs a graph of
its own, and one that counts what it saves (`use_reentrant=False`) must not count gates.

Noise is recognised by the state of torch's random numbers at each place, which
checkpointing restores.
"""

from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Final, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from diffprune._core.transforms import (
    is_argument,
    is_transformed,
    outside_of_transforms,
)
from diffprune._core.types import Float
from diffprune.errors import ArgumentError
from diffprune.gates import Gate, GateLike
from diffprune.gates.pooled import PooledGates

_REMEMBERED: Final = 2**16
"""Places whose noise is remembered, those of the latest passes."""

RandomState: TypeAlias = Mapping[torch.device, Tensor]
"""The state of torch's random numbers on each device that is used."""


@dataclass(frozen=True, eq=False)
class _Pass:
    """A forward pass: what each gate is worth, and the randomness it was drawn from."""

    values: Mapping[str, Tensor]
    drawn_from: RandomState | None


@final
class ForwardPasses:
    """The values of gates, one set per forward pass; every thread has its own passes.

    Args:
        gates: By name.

    Attributes:
        pooled: The gates, evaluated together.
    """

    def __init__(self, gates: Mapping[str, GateLike]) -> None:
        self.pooled = PooledGates(gates)
        self._gates = dict(gates)
        self._noisy = [gate for gate in gates.values() if _may_draw(gate)]
        self._running: dict[int, _Pass] = {}
        # None where a layer drew its own noise, outside of a pass of the whole model.
        self._noise = OrderedDict[int, RandomState | None]()

    def begin(self) -> None:
        """Evaluate every gate, for a pass of the whole model on this thread."""
        with self._outside_of_transforms():
            is_repeatable = self._draws() and torch.is_grad_enabled()
            state = self._random_state() if is_repeatable else None
            self._running[get_ident()] = _Pass(self.pooled.values(), state)

    def end(self) -> None:
        """Forget the values of the pass on this thread."""
        self._running.pop(get_ident(), None)

    def values(self, name: str) -> Float[Tensor, " units"]:
        """Values of a gate in the pass on this thread, or in the one that is redone."""
        running = self._running.get(get_ident())
        if running is None:
            with self._outside_of_transforms(), unseen_by_checkpoints():
                return self._again(name)
        if running.drawn_from is not None:
            self._remember_(running.drawn_from)
        return running.values[name]

    def _again(self, name: str) -> Float[Tensor, " units"]:
        if not self._draws():
            return self._alone(name)
        if not is_in_backward():
            self._remember_(None)
            return self._alone(name)
        place = _fingerprint(self._random_state())
        if place not in self._noise:
            raise ArgumentError(
                "a checkpointed part of the model is computed again, and the noise "
                "that its gates had in the forward pass cannot be told.\n"
                "Leave `preserve_rng_state=True` in `torch.utils.checkpoint`, call "
                "backward after fewer forward passes, or use gates without noise."
            )
        state = self._noise[place]
        if state is None:
            return self._alone(name)
        with _random_numbers_from(state):
            return self.pooled.values()[name]

    def _alone(self, name: str) -> Float[Tensor, " units"]:
        values = self._gates[name].values()
        self.pooled.slopes.listen(name, values)
        return values

    def _remember_(self, state: RandomState | None) -> None:
        if not _may_run_again():
            return
        place = _fingerprint(self._random_state())
        self._noise[place] = state
        self._noise.move_to_end(place)
        if len(self._noise) > _REMEMBERED:
            self._noise.popitem(last=False)

    @contextmanager
    def _outside_of_transforms(self) -> Generator[None]:
        """Evaluate gates for good, whatever `torch.func` does to their model.

        Raises:
            ArgumentError: If it transforms them, too.
        """
        gates = self._gates.values() if is_transformed() else ()
        if any(is_argument(p) for gate in gates for _, p in gate.named_parameters()):
            raise ArgumentError(
                "`torch.func` transforms the gates, and a pruner learns from the "
                "gradients of `loss.backward()` alone.\nTransform the model as a "
                "function of its inputs, or call `pruner.finalize()` first."
            )
        with outside_of_transforms():
            yield

    def _draws(self) -> bool:
        """Whether values may be random as the gates are now."""
        return any(isinstance(g, nn.Module) and g.training for g in self._noisy)

    def _random_state(self) -> RandomState:
        devices = {p.device for g in self._noisy for _, p in g.named_parameters()}
        return _random_state([torch.device("cpu"), *sorted(devices, key=str)])

    def __getstate__(self) -> dict[str, object]:
        """Copies begin without passes: what these hold belongs to a graph."""
        return {
            **vars(self),
            "_running": dict[int, _Pass](),
            "_noise": OrderedDict[int, RandomState | None](),
        }


def _may_draw(gate: GateLike) -> bool:
    """Whether a gate is not known to be without noise."""
    if type(gate) is not Gate:  # what is made of it may have formulas of its own
        return True
    return gate.base is not None or gate.log_noise_var is not None


@contextmanager
def unseen_by_checkpoints() -> Generator[None]:
    """Let no checkpoint count or drop what is saved for backward in here."""
    with ExitStack() as stack:
        # Not allowed inside `torch.func`, where there are no checkpoints either.
        with suppress(RuntimeError):
            stack.enter_context(saved_tensors_hooks(_as_it_is, _as_it_is))
        yield


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _may_run_again() -> bool:
    """Whether this is checkpointed: without gradients, or with a say in what is saved.

    Most forward passes are not, and need not pay for it.
    """
    if not torch.is_grad_enabled():
        return True
    top: Any = torch._C._autograd._top_saved_tensors_default_hooks  # noqa: SLF001  # pyright: ignore[reportAttributeAccessIssue] - nothing public says so
    return top(False) is not None  # noqa: FBT003 - takes no name


def is_in_backward() -> bool:
    """Whether this thread computes gradients."""
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001 - as checkpointing itself asks


def _random_state(devices: Sequence[torch.device]) -> RandomState:
    return {
        device: torch.get_rng_state()
        if device.type == "cpu"
        else torch.get_device_module(device).get_rng_state(device)
        for device in devices
    }


def _set_random_state(state: RandomState) -> None:
    for device, numbers in state.items():
        if device.type == "cpu":
            torch.set_rng_state(numbers)
        else:
            torch.get_device_module(device).set_rng_state(numbers, device)


@contextmanager
def _random_numbers_from(state: RandomState) -> Generator[None]:
    before = _random_state(list(state))
    _set_random_state(state)
    try:
        yield
    finally:
        _set_random_state(before)


def _fingerprint(state: RandomState) -> int:
    return hash(tuple(numbers.numpy().tobytes() for numbers in state.values()))

"""Several processes that train one model: one decides, all do it, all are compared.

Each process has the whole model. What may differ between them (measured times, what the
readers of units saw) is looked at by the first one alone, and what it makes of that is
handed to the others. At the end of every removal they compare what they have.

All messages are exchanges between all processes. One that fails tells so in the next
exchange, whatever the others expect from it there; so nobody waits for it.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, final

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from diffprune._core.digest import digest
from diffprune.errors import ProcessError

ValueT = TypeVar("ValueT")
Fingerprints = Mapping[str, str]
"""What all processes must have, condensed, by name."""


@dataclass(frozen=True)
class _Message:
    """What one process tells all others.

    Attributes:
        value: What they are waiting for.
        failure: Why there is none.
    """

    value: Any = None
    failure: str | None = None


@final
class Processes:
    """The processes that train a model; this one alone, until it joins others.

    Attributes:
        is_sharded: Whether each has a part of the model, divided by its pruner.
    """

    def __init__(self) -> None:
        self._group: ProcessGroup | None = None
        self._for_messages: ProcessGroup | None = None
        self._timeout = timedelta(minutes=30)
        self.is_sharded = False

    def __deepcopy__(self, memo: object) -> "Processes":
        """A copy of a model is trained by the same processes."""
        copied = Processes()
        vars(copied).update(vars(self))
        return copied

    def __reduce__(self) -> tuple[type["Processes"], tuple[()]]:
        return Processes, ()  # what is in a file is trained by nobody

    @property
    def count(self) -> int:
        """How many there are."""
        return 1 if self._group is None else self._group.size()

    @property
    def is_first(self) -> bool:
        """Whether this process decides."""
        return self._group is None or self._group.rank() == 0

    def join_(self, group: ProcessGroup, timeout: timedelta) -> None:
        """Train with the processes of a group from now on.

        Args:
            group: That of the wrapper around the model.
            timeout: For how long to wait for the others.
        """
        if group is not self._group and group.size() > 1:
            self._group, self._timeout, self._for_messages = group, timeout, None

    def decide(self, choose: Callable[[], ValueT]) -> ValueT:
        """What the first process chooses, on all of them.

        Args:
            choose: Called by the first process only.

        Raises:
            ProcessError: If another process has failed or does not answer.
        """
        if self.count == 1:
            return choose()
        return self._exchange(choose() if self.is_first else None)[0]

    def sum_(self, tensor: Tensor) -> None:
        """Add up a tensor over all processes, in place."""
        if self._group is not None:
            with self._explained():
                distributed.all_reduce(tensor, group=self._group)

    def copy_from_first_(self, tensors: Iterable[Tensor]) -> None:
        """Give all processes the numbers that the first one has.

        Raises:
            ProcessError: If another process has failed or does not answer.
        """
        if self._group is None:
            return
        self._exchange(None)  # whoever has failed does not take part
        with self._explained(), torch.no_grad():
            for tensor in tensors:
                distributed.broadcast(tensor, group=self._group, group_src=0)

    @contextmanager
    def agreeing(self, fingerprints: Callable[[], Fingerprints]) -> Generator[None]:
        """Let a block succeed on all processes, with the same result, or on none.

        Args:
            fingerprints: Condenses what all have to have after the block.

        Raises:
            ProcessError: On all processes, if one differs; if the block raises on one,
                on the others.
        """
        if self.count == 1:
            yield
            return
        try:
            yield
            found = self._exchange(dict(fingerprints()))
        except ProcessError:
            raise
        except Exception as error:
            with suppress(ProcessError):
                self._exchange(None, failure=f"{type(error).__name__}: {error}")
            raise
        _check_alike(found)

    def _exchange(self, value: object, failure: str | None = None) -> list[Any]:
        """Tell all others something, and hear what they say.

        Raises:
            ProcessError: If one has failed, is gone, or does not answer in time.
        """
        with self._explained():
            if self._for_messages is None:
                self._for_messages = self._make_group()
            found: list[Any] = [None] * self.count
            message = _Message(value, failure)
            distributed.all_gather_object(found, message, self._for_messages)
        for number, one in enumerate(found):
            if one.failure is not None:
                raise ProcessError(
                    f"process {number} has failed, and nothing was changed here: "
                    f"{one.failure}"
                )
        return [one.value for one in found]

    def _make_group(self) -> ProcessGroup:
        """A group for messages alone: between processors, with an end to waiting."""
        assert self._group is not None  # noqa: S101 - only several exchange
        found: Any = distributed.new_group(
            distributed.get_process_group_ranks(self._group),
            timeout=self._timeout,
            backend="gloo",
            use_local_synchronization=True,
        )
        return found

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:
            if isinstance(error, ProcessError):
                raise
            raise ProcessError(
                f"one of the {self.count} processes that train this model is gone, or "
                f"did not answer for {self._timeout.total_seconds():g} s: {error}\n"
                "Every process has to call `step` and `finalize` as often as the "
                "others. To go on, start all of them anew from the last checkpoint."
            ) from error


def fingerprints(tensors: Mapping[str, Tensor], plain: object) -> dict[str, str]:
    """Condense tensors, one by one, and plain values.

    Examples:
        >>> one = fingerprints({"weight": torch.ones(2)}, 3)
        >>> one == fingerprints({"weight": torch.ones(2)}, 3)
        True
    """
    found = {name: digest(tensor) for name, tensor in tensors.items()}
    return {"the steps and removals so far": digest(plain), **found}


def _check_alike(found: list[Fingerprints]) -> None:
    """Refuse processes that have something else than the first one.

    Raises:
        ProcessError: If there is one.
    """
    for number, one in enumerate(found):
        names = dict.fromkeys((*found[0], *one))
        for name in names:
            if found[0].get(name) != one.get(name):
                raise ProcessError(
                    f"process {number} differs from process 0 in `{name}`, so they no "
                    "longer train the same model. Nothing was removed.\nCall the "
                    "wrapper, not the module inside it, when you train, and change "
                    "parameters on no process alone."
                )

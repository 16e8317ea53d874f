"""How far a run is (`Progress`): enough to continue in the middle of an epoch."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, final

import torch
from torch import Tensor

from diffprune.lab.training.task import Loader


@final
class Stopwatch:
    """Time since it was made: on the wall, and what of it the processor gave us."""

    def __init__(self) -> None:
        self._seconds, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Seconds on the wall, and those of the process on all its threads."""
        seconds = time.perf_counter() - self._seconds
        return seconds, time.process_time() - self._processor


@dataclass(kw_only=True)
class Progress:
    """Where a run stands, and the sums of the epoch it is in.

    Attributes:
        epoch: Epochs that are done.
        batches: Batches of the present epoch that are done.
        examples: In these batches.
        loss: Sum over these batches.
        errors: That these batches had: one for each example, pixel or token.
        error: Their sum.
        seconds: Spent on these batches.
        processor_seconds: Spent on them by the processor: where a machine is shared,
            these tell more.
        total_seconds: Spent on all batches so far.
        epoch_start: State of the random generator before the present epoch.
    """

    epoch: int = 0
    batches: int = 0
    examples: int = 0
    loss: float = 0.0
    errors: int = 0
    error: float = 0.0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    total_seconds: float = 0.0
    epoch_start: Tensor = field(default_factory=torch.get_rng_state)

    def remaining(self, loader: Loader) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of this epoch that are still to come, in the order it began with.

        The order is drawn again as at the start of the epoch; then the random generator
        goes on from where it was.
        """
        now = torch.get_rng_state()
        torch.set_rng_state(self.epoch_start)
        batches = iter(loader)
        for _ in islice(batches, self.batches):
            pass
        if self.batches:
            torch.set_rng_state(now)
        yield from batches

    def add(
        self, examples: int, loss: Tensor, errors: Tensor, watch: Stopwatch
    ) -> None:
        """Count one more batch; `watch` started with it."""
        self.batches += 1
        self.examples += examples
        self.loss += float(loss)
        self.errors += errors.numel()
        self.error += float(errors.sum())
        # Only now: the numbers above wait for a device that is still computing.
        seconds, processor_seconds = watch.read()
        self.seconds += seconds
        self.processor_seconds += processor_seconds
        self.total_seconds += seconds

    def next_epoch(self) -> "Progress":
        """The start of the next epoch."""
        return Progress(epoch=self.epoch + 1, total_seconds=self.total_seconds)

    def to_dict(self) -> dict[str, Any]:
        """Plain data and a tensor, for a checkpoint."""
        return asdict(self)

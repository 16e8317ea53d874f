"""Write the epochs of a run as TensorBoard events while it lasts."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from diffprune._core.door import door
from diffprune._core.files import make_folder, storing
from diffprune.errors import MissingPackageError
from diffprune.lab.runs.records import Epoch
from diffprune.lab.training.loop import OnEpoch

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


@contextmanager
@door
def tensorboard(folder: str | os.PathLike[str]) -> Generator[OnEpoch, None, None]:
    """Write every epoch as events: `train(..., on_epoch=...)` calls what this yields.

    A run that was stopped continues in the same folder; epochs that it repeats replace
    the earlier ones.

    Args:
        folder: Where the events go; `tensorboard --logdir` shows it.

    Yields:
        What to call after every epoch.

    Raises:
        MissingPackageError: If tensorboard is not installed.
        StorageError: If there can be no such folder.
    """
    if find_spec("tensorboard") is None:
        raise MissingPackageError(
            "events are written with tensorboard, which is not installed.\n"
            "Install it with `pip install 'diffprune[tensorboard]'`."
        )
    from torch.utils.tensorboard.writer import SummaryWriter  # noqa: PLC0415 - optional

    make_folder(Path(folder))
    writers: list[SummaryWriter] = []

    def write(epoch: Epoch) -> None:
        with storing(Path(folder)):
            if not writers:
                where = os.fspath(folder)
                writers.append(SummaryWriter(where, purge_step=epoch.number))
            _write(writers[0], epoch)

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()


def scalars(epoch: Epoch) -> Iterator[tuple[str, float]]:
    """The numbers of an epoch, by the names that TensorBoard groups them under."""
    yield "loss", epoch.loss
    yield "learning rate", epoch.lr
    if epoch.train_error is not None:
        yield "error/train", epoch.train_error
    if epoch.validation_error is not None:
        yield "error/validation", epoch.validation_error
    yield "error/test", epoch.test_error
    yield "cost/parameters", epoch.parameters
    yield "cost/macs", epoch.macs
    yield "cost/macs per step", epoch.macs_per_step
    yield "seconds/epoch", epoch.seconds
    if epoch.steps:
        yield "seconds/step", epoch.seconds / epoch.steps
        yield "seconds/processor, step", epoch.processor_seconds / epoch.steps
    for gate, units in epoch.effective.items():
        yield f"units/{gate}", units


def _write(writer: "SummaryWriter", epoch: Epoch) -> None:
    for name, value in scalars(epoch):
        writer.add_scalar(name, value, epoch.number)
    for gate, probabilities in epoch.prob_open.items():
        values = torch.tensor(probabilities)
        writer.add_histogram(f"open/{gate}", values, epoch.number)
    writer.flush()

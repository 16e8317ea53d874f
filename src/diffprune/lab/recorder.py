"""Record a training loop of your own as a run folder, like those that `train` writes.

`diffprune compare` and `report` read it; `bench` and `export` too if the record says
where the function is that makes the model.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from diffprune._core.arguments import shown
from diffprune._core.door import door
from diffprune._core.files import write_bytes
from diffprune._core.tensor_files import packed
from diffprune._core.types import Amount, Count, Natural
from diffprune._pruner import Pruner
from diffprune.errors import ArgumentError
from diffprune.gates.penalty import named_gates
from diffprune.lab.runs.folder import Folder
from diffprune.lab.runs.import_spec import spell
from diffprune.lab.runs.records import INPUTS, Epoch
from diffprune.lab.training.metrics import (
    ErrorRate,
    gate_numbers,
    make_outcome,
    num_examples,
    open_units,
)
from diffprune.lab.training.no_pruning import Trainable
from diffprune.lab.training.progress import Stopwatch
from diffprune.lab.training.recipe import Recipe


@contextmanager
@door
def record(
    pruner: Pruner[Any],
    recipe: Recipe,
    *,
    out: str | os.PathLike[str],
    make_model: Callable[[], nn.Module] | None = None,
) -> Generator["Recorder", None, None]:
    """Record a training loop of your own.

    Args:
        pruner: Of the model that is trained.
        recipe: The numbers of the run, as far as tables should show them: its name,
            epochs, batch size, and the budget or strength.
        out: The run folder. A record that was not finished is continued.
        make_model: A function in a file or module that makes the model as it was before
            the pruner. With it, `diffprune bench`, `export` and the report can rebuild
            the network, if that takes one tensor.

    Yields:
        A recorder: call `epoch` after every epoch and `finish` after
        `pruner.finalize()`.

    Raises:
        ArgumentError: If the folder holds another run or a finished one, or another
            process is writing into it; or with `make_model`, if the model takes
            something else than one tensor.

    Examples:
        >>> import tempfile, torch, diffprune as dp
        >>> from diffprune import lab
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> pruner = dp.Pruner(model, torch.rand(4, 3), strength=1e-3)
        >>> recipe = lab.Recipe(name="mine", epochs=1, strength=1e-3)
        >>> out = tempfile.mkdtemp()
        >>> with lab.record(pruner, recipe, out=out) as recorder:
        ...     recorder.epoch(1, loss=0.5, test_error=3.0)  # after your own epoch
        ...     small = pruner.finalize()
        ...     recorder.finish(test_error=3.0)
        >>> lab.read_run(out).outcome.parameters
        32
    """
    spec = None if make_model is None else spell(make_model, Path(out))
    examples = pruner.example_inputs
    if isinstance(examples, tuple) and len(examples) == 1:
        examples = examples[0]
    if make_model is not None and not isinstance(examples, Tensor):
        raise ArgumentError(
            "what `make_model` is for can use models that take one tensor, and this "
            f"one takes {shown(examples)}.\nLeave `make_model` out, and measure and "
            "export with `diffprune.benchmark` and `diffprune.to_onnx`."
        )
    with Folder.open(Path(out), recipe, spec) as folder:
        if spec is not None and isinstance(examples, Tensor):
            inputs = examples.detach().cpu().contiguous()
            write_bytes(folder.path / INPUTS, packed({"inputs": inputs}))
        yield Recorder(folder, pruner, recipe)


@final
class Recorder:
    """Writes the epochs of a run, and what came out; `record` makes one."""

    def __init__(self, folder: Folder, pruner: Trainable, recipe: Recipe) -> None:
        self._folder, self._pruner, self._recipe = folder, pruner, recipe
        self._watch = Stopwatch()
        self._seconds = 0.0
        self._raw = open_units(pruner)

    @door
    def epoch(
        self,
        number: Count,
        *,
        loss: float,
        test_error: Amount,
        train_error: Amount | None = None,
        validation_error: Amount | None = None,
        test_examples: Natural = 0,
        steps: Natural = 0,
        lr: Amount | None = None,
    ) -> None:
        """Record an epoch that has just ended.

        Its seconds are those since the last call, evaluation included.

        Args:
            number: Of the epoch, counted from one. Later ones on record are dropped.
            loss: Mean over its batches.
            test_error: On test data, in percent.
            train_error: On training data, in percent.
            validation_error: On validation data, in percent.
            test_examples: Of how many the test error is a mean; reports then say how
                sure it is.
            steps: Of the optimizer in this epoch.
            lr: Learning rate; by default that of the recipe.
        """
        seconds, processor_seconds = self._watch.read()
        self._watch = Stopwatch()
        self._seconds += seconds
        self._raw = open_units(self._pruner)
        shape = self._pruner.shape()
        macs = shape.macs // num_examples(self._pruner)
        epoch = Epoch(
            number=number,
            loss=float(loss),
            train_error=train_error,
            validation_error=validation_error,
            test_error=float(test_error),
            parameters=shape.parameters,
            macs=macs,
            macs_per_step=3 * macs * self._recipe.batch_size,
            seconds=round(seconds, 3),
            processor_seconds=round(processor_seconds, 3),
            steps=steps,
            lr=self._recipe.lr if lr is None else lr,
            test_examples=test_examples,
            **gate_numbers(self._pruner),
        )
        self._folder.write_epoch(epoch, self._pruner.history)

    @door
    def finish(
        self,
        *,
        test_error: Amount,
        validation_error: Amount | None = None,
        test_examples: Natural = 0,
    ) -> None:
        """Record what came out, and save the small model; call after `finalize`.

        Args:
            test_error: Of the finalized model, in percent.
            validation_error: If there is validation data.
            test_examples: Of how many the test error is a mean.

        Raises:
            ArgumentError: If the pruner was not finalized.
        """
        pruner = self._pruner
        if named_gates(pruner.model):
            raise ArgumentError(
                "the model still has its gates: call `small = pruner.finalize()` "
                "before `recorder.finish(...)`."
            )
        outcome = make_outcome(
            pruner,
            self._raw,
            ErrorRate(float(test_error), test_examples),
            validation_error=validation_error,
            seconds=self._seconds,
        )
        self._folder.finish(pruner.model, pruner, outcome)

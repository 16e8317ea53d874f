"""Pruning in Lightning: one callback, and checkpoints that fit whatever was removed."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from diffprune._core.arguments import check, shown
from diffprune._core.door import door
from diffprune._core.files import check_readable
from diffprune._core.types import Amount
from diffprune._graph import ExampleInputs
from diffprune._io.gated_state import KEY, as_tensor, load_plain_
from diffprune._pruner import Pruner, RemovalRecord
from diffprune._pruner.state_in_model import StateInModel
from diffprune._surgery.first_shapes import FirstShapes
from diffprune.errors import ArgumentError
from diffprune.integrations._training import (
    add_penalty_,
    check_held,
    check_processes,
    check_pruner_options,
    set_gates_apart_,
    shares_left,
    with_steps,
)

LightningModuleT = TypeVar("LightningModuleT", bound=LightningModule)


class Pruning(Callback):
    """Makes a `LightningModule` smaller while it trains.

    The callback gates the module before its optimizers are made, adds the gradient of
    the penalty to every optimizer step, removes units, logs what is left, and hands the
    module back plain and small when `fit` ends. Checkpoints fit, whatever was removed
    since or before: `fit(ckpt_path=...)`, `test(ckpt_path="best")`.

    Args:
        example_inputs: What the pruned module is called with: a tensor, a tuple, or a
            dict of keyword arguments. By default the `example_input_array` of the
            `LightningModule`.
        module: The attribute to prune, such as `"net"` or `"net.encoder"`; by default
            the `LightningModule` itself, by its `forward`.
        gate_lr_scale: The learning rate of gates, as a multiple of that of weights.
        finalize: Whether the module is plain when `fit` ends; otherwise it keeps its
            gates, and `pruner.finalize()` is yours to call.
        **options: Options of `Pruner`: `strength=` or `budget=`, `freeze=`, and so on.
            A budget without `steps` lasts for the whole training.

    Attributes:
        pruner: The pruner, from when `fit` has begun.

    Put it before callbacks that copy the module, such as `EMAWeightAveraging`.
    """

    @door
    def __init__(
        self,
        example_inputs: ExampleInputs | None = None,
        *,
        module: str = "",
        gate_lr_scale: Amount = 1.0,
        finalize: bool = True,
        **options: Any,  # noqa: ANN401 - those of `Pruner`, which checks them
    ) -> None:
        super().__init__()
        check_pruner_options(options)
        self.pruner: Pruner[Any] | None = None
        self._inputs, self._module, self._options = example_inputs, module, options
        self._gate_lr_scale, self._finalize = gate_lr_scale, finalize
        self._link: StateInModel | None = None
        self._first_shapes: FirstShapes | None = None
        self._known_copies: list[nn.Module] = []
        self._loading: RemovableHandle | None = None
        self._is_finished, self._steps = False, 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Gate the module, or let it load what a gated one has saved."""
        if stage == "fit":
            self._start_(trainer, pl_module)
        elif self.pruner is None or self._is_finished:
            self._loading = self._target(pl_module).register_load_state_dict_pre_hook(
                self._load_plain_
            )

    def teardown(self, *_: object, **__: object) -> None:
        """Leave no hook behind."""
        if self._loading is not None:
            self._loading.remove()
            self._loading = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the optimizers, which exist by now."""
        pruner = self._running()
        self._add_copies_(trainer, pl_module)
        check_held(pruner, trainer.optimizers)
        for optimizer in trainer.optimizers:
            set_gates_apart_(pruner, optimizer, self._gate_lr_scale)

    def on_train_start(self, trainer: Trainer, *_: object, **__: object) -> None:
        """Count from here, be it the beginning or the middle of a run."""
        self._steps = trainer.global_step

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Add the gradient of the penalty."""
        del trainer
        penalty = add_penalty_(self._running(), [optimizer])
        pl_module.log("diffprune/penalty", penalty)

    def on_train_batch_end(self, trainer: Trainer, *_: object, **__: object) -> None:
        """Count a step, if the optimizer has taken one, and remove what is due."""
        if trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        record = self._running().step(*trainer.optimizers)
        if record is not None:
            for logger in trainer.loggers:
                logger.log_metrics(_metrics(record), trainer.global_step)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what is left."""
        del trainer
        pl_module.log_dict(shares_left(self._running()))

    def on_fit_end(self, *_: object, **__: object) -> None:
        """Hand the module back plain and small."""
        if self._finalize and self._link is not None:
            self._link.remove_()
            self._running().finalize()
            self._is_finished = True

    def on_save_checkpoint(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        checkpoint: dict[str, Any],
    ) -> None:
        """Say how a finished module differs from a fresh one."""
        del trainer, pl_module
        if self._is_finished and self.pruner is not None:
            state = {"plan": self.pruner.plan.to_json(), "scales": None}
            checkpoint["state_dict"][self._prefix + KEY] = as_tensor(state)

    @property
    def _prefix(self) -> str:
        return f"{self._module}." if self._module else ""

    def _target(self, pl_module: nn.Module) -> nn.Module:
        try:
            return pl_module.get_submodule(self._module)
        except AttributeError as error:
            names = ", ".join(f"`{name}`" for name, _ in pl_module.named_children())
            raise ArgumentError(
                f"module: {error}.\n{type(pl_module).__name__} has {names}."
            ) from error

    def _running(self) -> Pruner[Any]:
        assert self.pruner is not None  # noqa: S101 - `setup` comes first
        return self.pruner

    def _start_(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._is_finished:
            raise ArgumentError(
                "this callback has pruned a module to the end.\n"
                "Make a new `Pruning` to prune it further, or none to train it on."
            )
        if self.pruner is not None:
            return
        _check_strategy(trainer)
        if any(True for _ in self._copies(trainer, pl_module)):
            raise ArgumentError(
                "a callback has copied the module before it got its gates.\n"
                "Put `Pruning` first: `callbacks=[Pruning(...), ...]`."
            )
        if is_overridden("configure_model", pl_module):
            pl_module.configure_model()
        options = dict(self._options)
        steps = trainer.estimated_stepping_batches if options.get("budget") else 0
        options["budget"] = with_steps(options.get("budget"), steps)
        target, inputs = self._target(pl_module), self._example_inputs(pl_module)
        self.pruner = Pruner(target, inputs, **options)
        self._first_shapes = FirstShapes.of(target)
        self._link = StateInModel(
            self.pruner, lambda: self._before_load(trainer, pl_module)
        )

    def _example_inputs(self, pl_module: LightningModule) -> ExampleInputs:
        found: Any = self._inputs
        if found is None and not self._module:
            found = pl_module.example_input_array
        if found is None:
            raise ArgumentError(
                "the module is traced once, and that takes an input: give `Pruning` "
                "`example_inputs=`, or the `LightningModule` an `example_input_array`."
            )
        return found

    def _before_load(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> list[Optimizer]:
        self._add_copies_(trainer, pl_module)
        return trainer.optimizers

    def _add_copies_(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Moving averages that other callbacks keep are cut, too."""
        pruner = self._running()
        for copied in self._copies(trainer, pl_module):
            if not any(copied is known for known in self._known_copies):
                pruner.add_copy(copied)
                self._known_copies.append(copied)

    def _copies(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> Iterator[nn.Module]:
        others = [callback for callback in trainer.callbacks if callback is not self]  # pyright: ignore[reportAttributeAccessIssue] - set by Lightning
        held = [value for callback in others for value in vars(callback).values()]
        for value in held:
            if isinstance(value, nn.Module) and value is not pl_module:
                same = (m for m in value.modules() if type(m) is type(pl_module))
                yield from (self._target(copied) for copied in same)

    def _load_plain_(
        self, module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: object
    ) -> None:
        load_plain_(module, state_dict, prefix, self._first_shapes)


def load_from_checkpoint(
    cls: type[LightningModuleT],
    checkpoint_path: str | os.PathLike[str],
    **options: Any,  # noqa: ANN401 - those of Lightning, and of the class
) -> LightningModuleT:
    """Make a module as small as one in a checkpoint, and load its weights.

    Args:
        cls: The class of the `LightningModule`.
        checkpoint_path: A checkpoint that was written while `Pruning` was at work, or
            after it.
        **options: Further arguments of `cls.load_from_checkpoint`.

    Returns:
        The module, plain: gates have become weights.

    Raises:
        ArgumentError: If the checkpoint is damaged, that of another module, or its
            gates were placed by hand.
        MissingFileError: If there is no such file.
    """
    if not isinstance(cls, type) or not issubclass(cls, LightningModule):  # pyright: ignore[reportUnnecessaryIsInstance] - anything may be given
        raise ArgumentError(f"cls must be a class of modules, got {shown(cls)}.")
    check("checkpoint_path", str | os.PathLike[str], checkpoint_path)
    if "://" not in str(checkpoint_path):
        check_readable(Path(checkpoint_path))

    class Loading(cls):
        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            super().on_load_checkpoint(checkpoint)
            names = [name for name in checkpoint["state_dict"] if name.endswith(KEY)]
            for name in names:
                path = name.removesuffix(KEY)
                target = self.get_submodule(path.removesuffix("."))
                load_plain_(target, checkpoint["state_dict"], path)

    source = os.fspath(checkpoint_path)
    try:
        module: Any = Loading.load_from_checkpoint(source, **options)
    except (pickle.UnpicklingError, EOFError, KeyError, RuntimeError) as error:
        raise ArgumentError(
            f"`{source}` cannot be loaded: it is damaged, of another module, or no "
            f"checkpoint of Lightning. {error}"
        ) from error
    module.__class__ = cls
    return module


def _check_strategy(trainer: Trainer) -> None:
    """Refuse strategies whose processes hold or hand back the module otherwise.

    Raises:
        ArgumentError: If it is such a strategy.
    """
    strategy = trainer.strategy
    # Processes that Lightning forks hand weights back to a module that is still whole.
    is_ddp = (
        isinstance(strategy, DDPStrategy)
        and not isinstance(strategy, DeepSpeedStrategy)
        and strategy._start_method == "popen"  # noqa: SLF001 - nothing public tells
    )
    kind = f"Lightning's {type(strategy).__name__}"
    if isinstance(strategy, DDPStrategy) and not is_ddp:
        kind += ' of another kind than `strategy="ddp"`'
    check_processes(trainer.world_size, kind, is_data_parallel=is_ddp)


def _metrics(record: RemovalRecord) -> dict[str, float]:
    widths = {f"diffprune/width/{name}": n for name, n in record.units.items()}
    exact = record.certificate
    found = {} if exact is None else {"diffprune/certificate": exact.max_relative}
    return {**widths, **found}

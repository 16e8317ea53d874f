"""Pruning in the Trainer of transformers: one callback, nothing overridden."""

from typing import Any

from torch import nn
from transformers import (
    PreTrainedModel,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

from diffprune._core.door import door
from diffprune._core.types import Amount
from diffprune._graph import ExampleInputs
from diffprune._pruner import Pruner
from diffprune._pruner.state_in_model import StateInModel
from diffprune.errors import ArgumentError
from diffprune.integrations._hf_widths import ConfigWidths
from diffprune.integrations._training import (
    add_penalty_,
    check_held,
    check_processes,
    check_pruner_options,
    set_gates_apart_,
    shares_left,
    with_steps,
)


class Pruning(TrainerCallback):
    """Makes the model of a `Trainer` smaller while it trains.

    The callback gates the model when the `Trainer` is made, adds the gradient of the
    penalty to every optimizer step, removes units, and hands the model back plain and
    small when `train` ends. Checkpoints fit, whatever was removed since or before:
    `resume_from_checkpoint`, `load_best_model_at_end`.

    Args:
        example_inputs: What the model is called with, as a rule a dict such as
            `{"input_ids": ids}`.
        equal_widths: Whether all layers keep as many units as each other, wherever the
            config of the model has one number for them. Only those are removed, the
            config follows, and `from_pretrained` loads what `save_pretrained` writes.
            Otherwise every layer finds its own width: save with `dp.save_pruned` and
            load with `load_pretrained`.
        per_layer_config: The same for numbers that a config has for single layers, in
            a list or in its `per_layer_config`; few architectures read any. With
            `equal_widths`, numbers for all layers count where there are no others.
        gate_lr_scale: The learning rate of gates, as a multiple of that of weights.
        finalize: Whether the model is plain when `train` ends; otherwise it keeps its
            gates, and `pruner.finalize()` is yours to call.
        **options: Options of `Pruner`: `strength=` or `budget=`, `freeze=`, and so on.
            A budget without `steps` lasts for `max_steps`.

    Attributes:
        pruner: The pruner, once a `Trainer` was made with this callback.
    """

    @door
    def __init__(
        self,
        example_inputs: ExampleInputs,
        *,
        equal_widths: bool = False,
        per_layer_config: bool = False,
        gate_lr_scale: Amount = 1.0,
        finalize: bool = True,
        **options: Any,  # noqa: ANN401 - those of `Pruner`, which checks them
    ) -> None:
        check_pruner_options(options)
        self.pruner: Pruner[Any] | None = None
        self._inputs, self._options = example_inputs, options
        self._kinds = {"equal": equal_widths, "per_layer": per_layer_config}
        self._widths: ConfigWidths | None = None
        self._gate_lr_scale, self._finalize = gate_lr_scale, finalize
        self._link: StateInModel | None = None

    def on_init_end(
        self,
        args: TrainingArguments,
        *_: object,
        **kwargs: Any,  # noqa: ANN401 - what the Trainer hands to all callbacks
    ) -> None:
        """Gate the model, before an optimizer is made or a checkpoint is loaded."""
        sharing = [kind for kind in ("deepspeed", "fsdp") if getattr(args, kind, None)]
        kind = " and ".join(sharing)
        check_processes(args.world_size, kind, is_data_parallel=not sharing)
        model: nn.Module = kwargs["model"]
        options = dict(self._options)
        options["budget"] = with_steps(options.get("budget"), args.max_steps)
        if any(self._kinds.values()):
            plain = _pretrained(model)
            self._widths = ConfigWidths.of(plain, self._inputs, options, **self._kinds)
            options = self._widths.options(options)
        self.pruner = Pruner(model, self._inputs, **options)
        self._link = StateInModel(self.pruner)

    def on_train_begin(self, *_: object, **kwargs: Any) -> None:  # noqa: ANN401 - as above
        """Look at the optimizer, which exists by now."""
        optimizer: Any = kwargs["optimizer"]
        check_held(self._running(), [optimizer])
        inner = getattr(optimizer, "optimizer", optimizer)
        set_gates_apart_(self._running(), inner, self._gate_lr_scale)

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        *_: object,
        **kwargs: Any,  # noqa: ANN401 - as above
    ) -> None:
        """Add the gradient of the penalty; task gradients were clipped before."""
        optimizer: Any = kwargs["optimizer"]
        scaler = getattr(optimizer, "scaler", None)
        # Clipping has made gradients as large as they are; without it they are scaled.
        is_scaled = scaler is not None and not args.max_grad_norm
        scale = float(scaler.get_scale()) if scaler is not None and is_scaled else 1.0
        add_penalty_(self._running(), [optimizer], scale)

    def on_step_end(self, *_: object, **kwargs: Any) -> None:  # noqa: ANN401 - as above
        """Count a step of the optimizer, and remove what is due."""
        self._running().step(kwargs["optimizer"])

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        *_: object,
        **kwargs: Any,  # noqa: ANN401 - as above
    ) -> None:
        """Add what is left of the model to what is logged."""
        del args
        shares = shares_left(self._running())
        kwargs["logs"].update(shares)
        if state.log_history:
            state.log_history[-1].update(shares)

    def on_train_end(self, *_: object, **__: object) -> None:
        """Hand the model back plain and small."""
        if self._finalize and self._link is not None:
            self._link.remove_()
            model = self._running().finalize()
            if self._widths is not None:
                left = {name: len(n) for name, n in self._running().kept.items()}
                self._widths.write_(model, left)

    def _running(self) -> Pruner[Any]:
        if self.pruner is None:
            raise ArgumentError(
                "the callback has not seen the model: give it to the Trainer when that "
                "is made, `Trainer(..., callbacks=[Pruning(...)])`."
            )
        return self.pruner


def _pretrained(model: nn.Module) -> PreTrainedModel:
    if not isinstance(model, PreTrainedModel):
        raise ArgumentError(
            "`equal_widths` and `per_layer_config` follow a config, and a "
            f"{type(model).__name__} has none: leave them out."
        )
    return model

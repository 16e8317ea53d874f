"""Watch the training steps of a model: what readers see, and what the loss makes of it.

Hooks on the model switch the watch on during its own forward passes; what the backward
passes bring is heard on the way. No data and no loss function are needed.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from diffprune._choice.evidence import GroupEvidence
from diffprune._choice.examples import batch_size, first_examples
from diffprune._choice.forward import first_names, names_of, watch_maps
from diffprune._choice.listener import Listener
from diffprune._choice.watch import Watch
from diffprune._choice.worth import Leaving, order_units
from diffprune._core.transforms import is_transformed
from diffprune._core.types import Float
from diffprune._graph import ExampleInputs, PruneGroup


@final
class Observer:
    """Listens to a model while its user trains it.

    Args:
        model: Gets hooks, until `detach_`.
        groups: Whose units to find out about.
        choosing: How many examples to listen to.
        fitting: Of how many examples to hold the inputs, for a refit.

    Attributes:
        inputs: Inputs of the model, batch by batch.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: Sequence[PruneGroup],
        choosing: int,
        fitting: int,
    ) -> None:
        self._model, self._groups = model, groups
        self._choosing, self._fitting, self._held = choosing, fitting, 0
        self._listener = Listener(model, groups, choosing)
        self._calls = list[_Call | None]()
        self._counts, self._pending = list[int](), 0
        self.inputs = list[ExampleInputs]()
        self._handles = [
            model.register_forward_pre_hook(self.before, with_kwargs=True),
            model.register_forward_hook(self.behind, always_call=True),
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies of the model, in memory or in a file, are not listened to."""
        return Observer, (nn.Module(), (), 0, 0)

    @property
    def is_ready(self) -> bool:
        """Whether enough was heard."""
        has_inputs = self._held >= self._fitting
        return not self._pending and has_inputs and self._has_heard_enough

    @property
    def _has_heard_enough(self) -> bool:
        return self._listener.count >= self._choosing

    def before(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """Hook: a forward pass begins."""
        if self._calls and (outer := self._calls[-1]) is not None:
            outer.is_outer = True
            outer.end_()
            self._listener.return_to_(outer.position)
        is_plain = not torch.compiler.is_compiling() and not is_transformed()
        if not is_plain or not torch.is_grad_enabled():
            self._calls.append(None)
            return
        count = batch_size((*args, *kwargs.values()))
        held = self._hold(args, kwargs, count)
        call = _Call(count, held, self._listener.position)
        if not self._has_heard_enough:
            # A loss is a mean over examples, as a rule: each contributes its part.
            at_map = self._listener.at_map(self._names(), count, scale=count)
            call.watch_(watch_maps(at_map))
        self._calls.append(call)

    def behind(self, *_: object) -> None:
        """Hook: it ends."""
        call = self._calls.pop() if self._calls else None
        if call is None or call.is_outer:
            return
        if call.is_watched:
            self._counts.append(call.count)
            self._pending += 1
        call.end_()
        if call.held is not None:
            self._held += call.held[0]
            self.inputs += call.held[1]

    @property
    def examples_per_pass(self) -> float:
        """How many examples a forward pass had that was heard; zero if none was."""
        return sum(self._counts) / max(1, len(self._counts))

    def end_step(self, mean_square: float | None) -> None:
        """After an optimizer step.

        Args:
            mean_square: That of the gradients of gate values in this step; what was
                heard is put in proportion to it. If it is not finite, as where a scaled
                loss overflows, nothing was heard.
        """
        self._end_calls_()
        passes, self._pending = max(1, self._pending), 0
        if mean_square is not None and not math.isfinite(mean_square):
            self._listener.forget_batch()
            return
        scale = 1.0 if not mean_square else (passes / mean_square) ** 0.5
        self._listener.end_batch(scale)

    def leaving(
        self, squares: Mapping[str, Float[Tensor, " units"]]
    ) -> dict[str, Leaving]:
        """In which order the units of each group should leave.

        Args:
            squares: By group, what its units are worth if none of its readers could be
                listened to: mean squares of gradients of gates for one example, in
                proportion to the mean over all units for a batch.
        """
        return {
            group.name: order_units(
                GroupEvidence(
                    group.name,
                    group.size,
                    self._listener.heard(group.name),
                    squares[group.name],
                )
            )
            for group in self._groups
        }

    def state_dict(self) -> dict[str, Any]:
        """All that was heard, and the inputs that are held."""
        return {
            "listener": self._listener.state_dict(),
            "fitting": self._fitting,
            "counts": [*self._counts],
            "held": self._held,
            "inputs": [*self.inputs],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there, on the device that the model is on now."""
        device = next(self._model.parameters()).device
        found: Any = pytree.tree_map_only(Tensor, lambda t: t.to(device), dict(state))
        self._listener.load_state_dict(found["listener"])
        self._fitting, self._held = found["fitting"], found["held"]
        self._counts, self.inputs = [*found["counts"]], [*found["inputs"]]

    def detach_(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()
        self._end_calls_()

    def _end_calls_(self) -> None:
        """End forward passes that were interrupted: no hook runs after Ctrl-C."""
        while self._calls:
            if (call := self._calls.pop()) is not None:
                call.end_()

    def _names(self) -> Callable[[Tensor], str]:
        """The first name of a weight, though it may be gated, or have several names."""
        plain, first = names_of(self._model), first_names(self._model)

        def name_of(weight: Tensor) -> str:
            if id(weight) in plain:
                return plain[id(weight)]
            # While a layer runs, a gated weight is in the place of its own.
            return first.get(names_of(self._model).get(id(weight), ""), "")

        return name_of

    def _hold(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], count: int
    ) -> tuple[int, list[ExampleInputs]] | None:
        """The inputs of some examples, as they are now, and how many these are."""
        if self._held >= self._fitting:
            return None
        some = min(count, self._fitting - self._held)
        inputs = _as_inputs(self._model, args, kwargs)
        if inputs is None:
            return some, []
        first = first_examples(inputs, some)
        like = next(self._model.parameters()).dtype
        own = pytree.tree_map_only(
            Tensor, lambda t: _as_without_autocast(t, like), first
        )
        return some, [own]


@final
class _Call:
    """A forward pass of the model that is under way.

    A trainer may call the model to run something around its own forward pass. Then the
    call inside is the model's own, and counts alone.

    Args:
        count: How many examples run.
        held: Of how many of them inputs are held, and these.
        position: Where the listener was before it.
    """

    def __init__(
        self,
        count: int,
        held: tuple[int, list[ExampleInputs]] | None,
        position: tuple[int, int],
    ) -> None:
        self.count, self.held, self.position = count, held, position
        self.is_outer = self.is_watched = False
        self._watch: Watch | None = None

    def watch_(self, watch: Watch) -> None:
        """Watch until the end, or until another call begins inside."""
        self.is_watched, self._watch = True, watch
        watch.__enter__()

    def end_(self) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.__exit__(None, None, None)
            self._watch = None


def _as_without_autocast(x: Tensor, like: torch.dtype) -> Tensor:
    """A copy of an input that a model of this type takes outside of autocast, too."""
    device, own = x.device.type, x.detach().clone()
    is_cast = torch.is_autocast_enabled(device) and like.is_floating_point
    return (
        own.to(like) if is_cast and x.dtype == torch.get_autocast_dtype(device) else own
    )


def _as_inputs(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> ExampleInputs | None:
    """The arguments of a call as a tuple or a dict; None if they cannot be either."""
    if not kwargs:
        return args
    if not args:
        return dict(kwargs)
    bound = inspect.signature(model.forward).bind(*args, **kwargs)
    kinds = [bound.signature.parameters[name].kind for name in bound.arguments]
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return dict(bound.arguments) if all(kind in plain for kind in kinds) else None

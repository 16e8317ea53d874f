"""Gates that diffprune adds: hooked up where they multiply, and taken out again."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from diffprune._core.copying import copied
from diffprune._core.modules import GATES, named_tensors
from diffprune._core.types import Int
from diffprune._costs.network import Network
from diffprune._graph import Atom, ExampleInputs, Groups, PruneGroup, Value
from diffprune._pruner.gate_sites import (
    Factor,
    Gating,
    Place,
    ReadAgain,
    Swap,
    runs_as_torch_has_it,
)
from diffprune._pruner.gate_targets import Targets
from diffprune._pruner.placement import Cut, Keep, keep_gates_
from diffprune.errors import ArgumentError
from diffprune.gates import GateLike
from diffprune.gates.pooled import PooledGates


def attach_(model: nn.Module, groups: Groups, gates: Mapping[str, GateLike]) -> Gating:
    """Gate a model in place.

    Args:
        model: Keeps its class and the names of its parameters.
        groups: Its groups.
        gates: A gate for each group to prune, by group name.

    Raises:
        ArgumentError: If the forward pass changes a weight that a gate would multiply.
    """
    gating, targets = Gating(gates), Targets(groups)
    for name in gates:
        for tensor, dim in targets.of(groups[name]):
            axis = groups.tensors[tensor][dim]
            factor = Factor(name, dim, axis, groups[name].atom)
            gating.add_factor(tensor, factor)
    _check_kept(gating, groups)
    _home(model, gating).add_module(GATES, gating)
    _hook_(model, groups, gating)
    return gating


def _check_kept(gating: Gating, groups: Groups) -> None:
    """Refuse a change of a gated weight, in whose place another tensor stands then."""
    tensors, traces = groups.solution.tensors, groups.solution.traces
    written = {tensors[name] for trace in traces for name in trace.written}
    if lost := [name for name in gating.sites() if tensors[name] in written]:
        raise ArgumentError(
            f"the forward pass changes `{lost[0]}` itself, as that of a momentum "
            "encoder does, and a gate would multiply it, so the change would be lost."
            "\nChange it outside of the forward pass, after `optimizer.step()`; or "
            f"leave it as it is: `freeze=[{lost[0]!r}]`."
        )


@final
class AddedGates:
    """Gates that diffprune adds to a model, one for each group; a `GatePlacement`.

    Args:
        names: The groups that have a gate.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    def gates(self, model: nn.Module) -> dict[str, GateLike]:
        """The gates of the model, or of a copy of it, by group name."""
        gating = gating_of(model)
        return {name: gating.gate(name) for name in self._names}

    def pooled(self, model: nn.Module) -> PooledGates:
        """The gates of the model as its forward pass evaluates them."""
        return gating_of(model).pooled

    def units(self, groups: Groups) -> dict[str, PruneGroup]:
        """The groups that have a gate, by name."""
        return {name: groups[name] for name in self._names}

    def present(self, model: nn.Module) -> dict[str, Int[Tensor, " width"]]:
        """All units of each gate: none leaves the data without leaving its gate."""
        return {n: torch.arange(gate.size) for n, gate in self.gates(model).items()}

    def cut(
        self,
        _: nn.Module,
        groups: Groups,
        keep: Mapping[str, Keep],
        atoms: Mapping[Atom, Keep] | None = None,
    ) -> Cut:
        """Each gate decides about the units of its own group, and about no others."""
        found = {groups[name].atom: units for name, units in keep.items()}
        return Cut(keep, found if atoms is None else atoms, groups)

    def keep_(self, model: nn.Module, cut: Cut) -> None:
        """Cut the gates, and lay their values out along the smaller parameters."""
        keep_gates_(self.gates(model), cut.gates)
        for tensor, factors in gating_of(model).sites().items():
            for factor in factors:
                axis = cut.groups.tensors[tensor][factor.dim]
                factor.spread_(axis, cut.groups[factor.gate].atom)

    @torch.no_grad()
    def fold_(self, model: nn.Module, _: Groups) -> None:
        """Multiply the gates into the parameters, and take them out of the model."""
        # In eval mode: noise must not become a weight.
        gating, tensors = gating_of(model).eval(), named_tensors(model)
        for name, factors in gating.sites().items():
            tensors[name].copy_(gating.gated(factors, tensors[name]))
        for handle in gating.handles:
            handle.remove()
        for module in model.modules():
            module._modules.pop(GATES, None)  # noqa: SLF001 - undoes add_module
            if isinstance(module._parameters, ReadAgain):  # noqa: SLF001 - undoes _hook_
                module._parameters = dict(module._parameters)  # noqa: SLF001

    def unfold_(
        self, model: nn.Module, groups: Groups, gates: Mapping[str, GateLike]
    ) -> None:
        """Put gates back into a model that they were folded into; it keeps its sizes.

        Args:
            model: The model.
            groups: As they were when it was gated first.
            gates: By name.
        """
        gating = attach_(model, groups, gates).train(model.training)
        gating.to(next(model.parameters()).device)

    def network(
        self, model: nn.Module, inputs: ExampleInputs, groups: Groups
    ) -> Network:
        """The model as it will be in use, without gates: what costs are about."""
        plain = copied(model)
        self.fold_(plain, groups)
        return Network(plain, inputs, groups, [groups[name] for name in self._names])


def put_back(model: nn.Module) -> None:
    """Give layers their own parameters again, if a forward pass was interrupted."""
    for module in model.modules():
        if isinstance(module, Gating):
            module.put_back()


def gating_of(model: nn.Module) -> Gating:
    """The gates that were attached to a model."""
    for module in model.modules():
        if isinstance(module, Gating):
            return module
    raise ArgumentError(
        "the gates are gone: the layer that held them was replaced.\n"
        "Change the model before making the pruner, not after."
    )


def _home(model: nn.Module, gating: Gating) -> nn.Module:
    """The last layer with a gate, for all gates to live in.

    They come behind nearly all parameters there: code that goes through parameters in
    their order, as a momentum encoder does, still meets its own. Not the model itself:
    it may be a container that calls all its children.
    """
    owners = (name.rpartition(".")[0] for name in gating.sites())
    gated = {path.partition(".parametrizations")[0] for path in owners}
    for path, layer in reversed([*model.named_modules(remove_duplicate=False)]):
        is_container = isinstance(layer, nn.Sequential | nn.ModuleList | nn.ModuleDict)
        if path in gated and not is_container:
            return layer
    return model


def _hook_(model: nn.Module, groups: Groups, gating: Gating) -> None:
    names: dict[Value, list[str]] = {}
    for name, value in groups.solution.tensors.items():
        names.setdefault(value, []).append(name)
    gated = {groups.solution.tensors[n]: f for n, f in gating.sites().items()}
    used: dict[Value, list[str]] = {}
    for step in groups.solution.steps:
        for value in gated.keys() & set(step.inputs):
            used.setdefault(value, []).append(step.call.where.module)
    places: dict[str, list[Place]] = {}
    for value, factors in gated.items():
        where = [name.rpartition(".")[::2] for name in names[value]]
        runs_in = _common([*used.get(value, ()), *(path for path, _ in where)])
        # A layer that a model has under several names is one place all the same.
        owners = {(model.get_submodule(path), name): None for path, name in where}
        for owner, attribute in owners:
            place = Place(owner, attribute, factors)
            places.setdefault(runs_in, []).append(place)
    swaps = {path: Swap(gating, found) for path, found in places.items()}
    for path, swap in swaps.items():
        _let_read_again_(model.get_submodule(path), swap)
    gating.swaps = [*swaps.values()]
    gating.handles = [
        model.register_state_dict_pre_hook(gating.put_back),
        *(
            handle
            for path, swap in swaps.items()
            for handle in _around(model.get_submodule(path), swap)
        ),
        model.register_forward_pre_hook(gating.open_forward, prepend=True),
        model.register_forward_hook(gating.close_forward, always_call=True),
    ]


def _let_read_again_(around: nn.Module, swap: Swap) -> None:
    """Gate what is read in backward where the hooks of a swap may not run then."""
    for place in swap.places:
        owner = place.owner
        if owner is around and runs_as_torch_has_it(owner):
            continue
        held = owner._parameters  # noqa: SLF001 - nothing public lets reads be seen
        if not isinstance(held, ReadAgain):
            held = owner._parameters = ReadAgain(held)  # noqa: SLF001
        held.swaps[place.name] = swap


def _around(module: nn.Module, swap: Swap) -> Sequence[RemovableHandle]:
    # Parameters before other hooks, which may compute the weight from them; inputs
    # after these, which may change them.
    before = not swap.may_scale_inputs
    return (
        module.register_forward_pre_hook(swap.enter, prepend=before),
        module.register_forward_hook(swap.leave, always_call=True),
    )


def _common(paths: Iterable[str]) -> str:
    """The innermost module around all of these.

    Of a parameter: its owner fetches it, and may be outside of where it is used
    (parametrizations).
    """
    levels = zip(*(f".{path}".split(".") for path in paths), strict=False)
    common = takewhile(lambda names: len(set(names)) == 1, levels)
    return ".".join(names[0] for names in common).lstrip(".")

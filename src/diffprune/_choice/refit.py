"""Refit a smaller network to what the whole one computes, without training.

A layer that read removed units reads fewer now. Its weight is fitted again, by least
squares, so that on the inputs the *small* network gives it returns what it returned in
the *whole* network. Layers are fitted in the order they run, so each corrects what is
left of the errors before it; running statistics of norms are estimated on the way.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Final, TypeAlias, final

import torch
from torch import Tensor, nn

from diffprune._choice.examples import from_few, joined
from diffprune._choice.forward import (
    Compute,
    computes,
    first_names,
    names_of,
    run_watched,
)
from diffprune._choice.least_squares import Fit, LeastSquares
from diffprune._choice.linear_maps import Convolution, LinearMap
from diffprune._choice.lockstep import Pausable
from diffprune._choice.watch import FunctionCall
from diffprune._core.copying import copied
from diffprune._core.recomputation import without_recomputing
from diffprune._core.types import Int
from diffprune._graph import (
    ExampleInputs,
    accepting,
    mode,
    narrow,
    own_arguments,
    unchanged,
)
from diffprune.errors import ArgumentError
from diffprune.gates.gate import precise

Kept: TypeAlias = Mapping[str, Mapping[int, Sequence[int]]]
"""For each tensor that shrank, the kept indices per dimension."""

_Named: TypeAlias = Sequence[tuple[str, ExampleInputs]]
"""Batches, each with what errors call it."""

MAX_ROWS: Final = 16_384
_MAX_JOINED: Final = 64
"""Examples of small batches that run at once; every pass that waits has a thread."""
_MAX_FEATURES: Final = 8_192
_GAIN: Final = 0.999  # a fit that is not this much better is not worth a change


@dataclass(frozen=True)
class ReaderFit:
    """A layer that was fitted again.

    Attributes:
        weight: Name of its weight.
        before: Mean square error of its outputs before, as a part of their variance,
            on rows that were not fitted.
        after: The same after; equal if the fit was no better and was dropped.
    """

    weight: str
    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.weight}: output error {self.before:.3g} -> {self.after:.3g}"


@dataclass(frozen=True)
class Refit:
    """What was fitted again, what was not, and why.

    Attributes:
        readers: The layers that were fitted, in the order they run.
        norms: Running means of the norms whose statistics were estimated again.
        skipped: Weights that read removed units and were not fitted, and why.
    """

    readers: tuple[ReaderFit, ...] = ()
    norms: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def has_failed(self) -> bool:
        """Whether something was to be fitted, and nothing could be."""
        return bool(self.skipped) and not self.readers

    def __str__(self) -> str:
        lines = [str(reader) for reader in self.readers]
        lines += [f"{name}: statistics estimated again" for name in self.norms]
        lines += [f"{name}: not fitted, {why}" for name, why in self.skipped.items()]
        return "\n".join(lines or ["nothing to fit"])


def refit_(
    small: nn.Module,
    whole: nn.Module,
    kept: Kept,
    batches: Iterable[ExampleInputs],
    *,
    read: Collection[str] = (),
    normed_by_batch: Collection[str] = (),
    rows_per_feature: float = 0.0,
) -> Refit:
    """Fit the layers of a smaller network to those of the whole one, in place.

    Args:
        small: The smaller network; its weights change.
        whole: The network it was made from.
        kept: What was kept of each tensor, as a removal plan says it.
        batches: Inputs of the model, each as for `find_groups`. Of each batch what one
            layer at a time makes of it is held in memory.
        read: Weights that read removed units; those that cannot be fitted are named.
        normed_by_batch: Running means of norms that use the statistics of these batches
            in both networks, as they do in training; others keep theirs in the whole
            one.
        rows_per_feature: Layers are left as they are if the batches have fewer rows for
            each of the features they read.

    Returns:
        By how much the error of each layer fell.

    Raises:
        ArgumentError: If there are no batches, one of the networks does not accept one,
            or batches run different layers.
    """
    held = [*batches]
    if not held:
        raise ArgumentError(
            "refit needs at least one batch of inputs, and got none.\n"
            "Pass a list such as `refit=[x for x, _ in loader]`."
        )
    with (
        torch.no_grad(),
        unchanged(small) as written,
        unchanged(whole),
        mode(small, training=False),
        mode(whole, training=False),
        without_recomputing(),
        narrow(whole),  # so that rows come in the order they have in the small one
    ):
        uses = from_few(partial(_uses, whole), held[0])
        terms = _Terms(rows_per_feature, frozenset(normed_by_batch))
        session = _Session(small, whole, kept, uses, terms)
        named = joined(held, _MAX_JOINED, partial(_returned, whole))
        session.fit_shared_(named)
        session.fit_in_order_(named)
        for statistics in session.estimated:
            written.pop(statistics, None)
    return session.result(read)


@dataclass(frozen=True)
class _Uses:
    """How a model uses its weights in one forward pass.

    Attributes:
        maps: How often each weight is that of a linear map.
        others: Weights that do something else, too.
        before_norm: Weights whose outputs go straight into a norm with statistics.
    """

    maps: Mapping[str, int]
    others: frozenset[str]
    before_norm: frozenset[str]

    @property
    def shared(self) -> frozenset[str]:
        """Weights of several linear maps."""
        return frozenset(name for name, times in self.maps.items() if times > 1)


def _returned(model: nn.Module, inputs: ExampleInputs) -> object:
    args, kwargs = own_arguments(inputs)
    return model(*args, **kwargs)


def _uses(model: nn.Module, inputs: ExampleInputs) -> _Uses:
    """Watch one forward pass."""
    names, maps = names_of(model), Counter[str]()
    others, norms = set[str](), set[str]()
    summed_over = dict[str, int]()
    made = dict[int, tuple[str, Tensor]]()

    def at_map(found: LinearMap, compute: Compute) -> Tensor:
        y, name = compute(found.x), names.get(id(found.weight))
        if name is not None:
            maps[name] += 1
            if summed_over.setdefault(name, found.input_dim) != found.input_dim:
                others.add(name)  # as a tied decoder has it
            made[id(y)] = name, y  # held, so that no other tensor gets its id
        return y

    def otherwise(call: FunctionCall) -> Any:  # noqa: ANN401 - what the call returns
        if computes(call):
            others.update(names[id(t)] for t in call.tensors if id(t) in names)
        if _statistics(call) and id(call.args[0]) in made:
            norms.add(made[id(call.args[0])][0])
        return call.run()

    run_watched(model, inputs, at_map, otherwise)
    return _Uses(maps, frozenset(others), frozenset(norms))


def _statistics(call: FunctionCall) -> tuple[Tensor, Tensor] | None:
    """The running mean and variance that a call normalises with."""
    found = call.args[3:5] if call.name == "batch_norm" else ()
    both = [tensor for tensor in found if isinstance(tensor, Tensor)]
    return (both[0], both[1]) if len(both) == 2 else None


@dataclass(frozen=True, eq=False)
class _Stop:
    """Where a forward pass waits: at a linear map, or at a norm."""

    name: str
    x: Tensor
    map: LinearMap | None = None
    y: Tensor | None = None
    statistics: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class _Terms:
    """What is asked of a fit; as for `refit_`."""

    rows_per_feature: float
    normed_by_batch: frozenset[str]


@final
class _Session:
    """One refit: what is known of both networks, and what was done.

    Attributes:
        estimated: Running statistics that are others now.
    """

    def __init__(
        self, small: nn.Module, whole: nn.Module, kept: Kept, uses: _Uses, terms: _Terms
    ) -> None:
        self._small, self._whole, self._kept = small, whole, kept
        self._uses, self._terms = uses, terms
        self._readers, self._norms = list[ReaderFit](), list[str]()
        self.estimated = list[Tensor]()
        self._skipped = dict.fromkeys(
            sorted(uses.others & uses.maps.keys()),
            "because it has another use, too, which a fit would spoil",
        )

    def result(self, read: Collection[str]) -> Refit:
        """What was done; of the weights that lost inputs, why some were left."""
        first = first_names(self._whole)
        lost = {first.get(name, name) for name in read if name in self._kept}
        done = {reader.weight for reader in self._readers}
        why = "because it is not the plain weight of a linear map or a convolution"
        skipped = {
            name: self._skipped.get(name, why)
            for name in self._kept
            if name in lost - done
        }
        return Refit(tuple(self._readers), tuple(self._norms), skipped)

    def fit_shared_(self, batches: _Named) -> None:
        """Fit weights that are used several times, on what the whole network gives."""
        names, maps = names_of(self._whole), dict[str, LinearMap]()
        sums = dict[str, LeastSquares]()

        def at_map(found: LinearMap, compute: Compute) -> Tensor:
            y, name = compute(found.x), names.get(id(found.weight), "")
            if name in self._uses.shared and self._is_fitted_alone(name, found):
                sums.setdefault(name, LeastSquares(centred=False))
                maps[name] = found
                rows = _rows(found, y, len(batches) * self._uses.maps[name])
                aims = found.outputs(y, rows)
                if found.bias is not None:
                    aims = aims - found.bias.view(aims.shape[1:])
                inputs = self._kept_inputs(name, found, found.inputs(y, rows))
                sums[name].add(precise(inputs), self._kept_outputs(name, found, aims))
            return y

        for called, inputs in batches if self._uses.shared else ():
            with accepting(called):
                run_watched(self._whole, inputs, at_map)
        weights = dict(self._small.named_parameters())
        for name, found in maps.items():
            start = found.matrix(weights[name])
            if not self._has_rows(name, sums[name], start.shape[1]):
                continue
            fit = sums[name].solve(start)
            self._set_(name, found, weights[name], None, fit)

    def _is_fitted_alone(self, name: str, found: LinearMap) -> bool:
        """Whether a shared weight lost inputs and can be fitted."""
        if found.input_dim not in self._kept.get(name, {}) or name in self._skipped:
            return False
        if isinstance(found, Convolution) and found.groups > 1:
            self._skipped[name] = "because it is a shared convolution in groups"
        return name not in self._skipped

    def _kept_inputs(self, name: str, found: LinearMap, inputs: Tensor) -> Tensor:
        kept = self._kept[name][found.input_dim]
        index = torch.tensor(kept, device=inputs.device)
        window = inputs.shape[-1] // found.weight.shape[found.input_dim]
        return inputs.unflatten(-1, (-1, window))[:, :, index].flatten(2)

    def _kept_outputs(
        self, name: str, found: LinearMap, outputs: Tensor, groups: int = 1
    ) -> Tensor:
        index = found.kept_outputs(self._kept.get(name, {}))
        flat = outputs.flatten(1)
        flat = flat if index is None else flat[:, list(index)]
        return precise(flat.unflatten(1, (groups, -1)))

    def fit_in_order_(self, batches: _Named) -> None:
        """Fit all others in the order they run, on what the small network gives."""
        small = [Pausable(self._walk(self._small, *one)) for one in batches]
        whole = [
            Pausable(self._walk(self._whole, *one, is_whole=True)) for one in batches
        ]
        try:
            for stops in zip_longest(*small):
                name = next(stop.name for stop in stops if stop is not None)
                self._stop_(name, stops, [_until(walk, name) for walk in whole])
        finally:
            for walk in (*small, *whole):
                walk.close()

    def _walk(
        self,
        model: nn.Module,
        called: str,
        inputs: ExampleInputs,
        *,
        is_whole: bool = False,
    ) -> Callable[[Callable[[_Stop], None]], None]:
        """A forward pass that waits: before a map in the small network, else behind."""
        # A module that keeps something during its forward pass must not share it with
        # a pass that waits; the tensors are the same ones.
        tensors = [*model.parameters(), *model.buffers()]
        own = copied(model, {id(tensor): tensor for tensor in tensors})
        names = names_of(model)
        who = "the model" if is_whole else "the smaller model"

        def run(pause: Callable[[_Stop], None]) -> None:
            def at_map(found: LinearMap, compute: Compute) -> Tensor:
                name = names.get(id(found.weight))
                if name is None or self._uses.maps.get(name) != 1:
                    return compute(found.x)
                if is_whole:
                    y = compute(found.x)
                    pause(_Stop(name, found.x, found, y))
                    return y
                pause(_Stop(name, found.x, found))
                return compute(found.x)

            def otherwise(call: FunctionCall) -> Any:  # noqa: ANN401 - as nested as it is
                both = _statistics(call)
                if both is not None and id(both[0]) in names:
                    pause(_Stop(names[id(both[0])], call.args[0], statistics=both))
                return call.run()

            with torch.no_grad(), accepting(called, who):
                run_watched(own, inputs, at_map, otherwise)

        return run

    def _stop_(
        self,
        name: str,
        small: Sequence[_Stop | None],
        whole: Sequence[_Stop | None],
    ) -> None:
        """All forward passes wait at the same place: fit it."""
        stops = [stop for stop in small if stop is not None and stop.name == name]
        found = [stop for stop in whole if stop is not None]
        if len(stops) < len(small) or len(found) < len(small):
            raise ArgumentError(
                f"not every batch runs `{name}` in the same place, so layers cannot "
                "be fitted to all of them.\nUse batches that the model treats alike, "
                "or leave the refit out."
            )
        if stops[0].map is None:
            self._estimate_(stops, found)
        elif name not in self._skipped:
            self._fit_(stops, found)

    def _fit_(self, stops: Sequence[_Stop], wholes: Sequence[_Stop]) -> None:
        first, name = stops[0].map, stops[0].name
        assert first is not None  # noqa: S101 - asked before
        if _are_same(stops, wholes):
            return
        if not all(map(_have_equal_rows, stops, wholes)):
            self._skipped[name] = "because it runs along units that were removed"
            return
        start = first.matrix(first.weight)
        if start.shape[1] > _MAX_FEATURES:
            self._skipped[name] = f"because it reads {start.shape[1]:,} features"
            return
        is_before_norm = name in self._uses.before_norm
        sums = LeastSquares(centred=first.bias is not None or is_before_norm)
        for stop, whole in zip(stops, wholes, strict=True):
            assert stop.map is not None  # noqa: S101 - all wait at one map
            assert whole.map is not None  # noqa: S101 - so do these
            assert whole.y is not None  # noqa: S101 - they wait behind it
            rows = _rows(whole.map, whole.y, len(stops))
            inputs = stop.map.inputs(whole.y, rows)
            aims = whole.map.outputs(whole.y, rows)
            groups = inputs.shape[1]
            sums.add(precise(inputs), self._kept_outputs(name, whole.map, aims, groups))
        if not self._has_rows(name, sums, start.shape[1]):
            return
        offset = None if is_before_norm else first.bias
        fit = sums.solve(start, offset=offset)
        self._set_(name, first, first.weight, first.bias, fit)

    def _has_rows(self, name: str, sums: LeastSquares, features: int) -> bool:
        """Whether there is enough to fit a weight to."""
        if not sums.count:
            self._skipped[name] = "because what it reads or returns is never finite"
        elif sums.count < self._terms.rows_per_feature * features:
            self._skipped[name] = (
                f"because there are {sums.count:,} rows for {features:,} features"
            )
        return name not in self._skipped

    def _set_(
        self,
        name: str,
        found: LinearMap,
        weight: Tensor,
        bias: Tensor | None,
        fit: Fit,
    ) -> None:
        """Take a fit over if it is better on rows it has not seen."""
        is_better = fit.after < _GAIN * fit.before
        if is_better:
            weight.copy_(found.unmatrix(fit.matrix, weight.shape))
            if bias is not None:
                bias.copy_(fit.offset.flatten())
        after = fit.after if is_better else fit.before
        self._readers.append(ReaderFit(name, fit.before, after))

    def _estimate_(self, stops: Sequence[_Stop], wholes: Sequence[_Stop]) -> None:
        """Estimate statistics where inputs are others now, or batches are used."""
        name = stops[0].name
        is_normed_by_batch = name in self._terms.normed_by_batch
        if is_normed_by_batch:
            _estimate_statistics_(wholes)
        kept = self._kept.get(name, {}).get(0)
        if kept is not None:
            wholes = [replace(stop, x=stop.x[:, list(kept)]) for stop in wholes]
        if is_normed_by_batch or not _are_same(stops, wholes):
            estimated = _estimate_statistics_(stops)
            self.estimated += estimated
            self._norms += [name] if estimated else []


def _estimate_statistics_(stops: Sequence[_Stop]) -> tuple[Tensor, ...]:
    """Write the statistics of what waits at a norm; which tensors these are."""
    assert stops[0].statistics is not None  # noqa: S101 - it waits at a norm
    rows = [precise(stop.x.movedim(1, -1).flatten(0, -2)) for stop in stops]
    rows = [some[some.isfinite().all(1)] for some in rows]
    count = sum(map(len, rows))
    if not count:
        return ()
    mean, variance = stops[0].statistics
    centre = torch.stack([part.double().sum(0) for part in rows]).sum(0) / count
    squares = [(part.double() - centre).square().sum(0) for part in rows]
    mean.copy_(centre)
    variance.copy_(torch.stack(squares).sum(0) / max(1, count - 1))
    return mean, variance


def _until(walk: Pausable[_Stop], name: str) -> _Stop | None:
    """Let a forward pass go on until it comes to this place."""
    return next((stop for stop in walk if stop.name == name), None)


def _are_same(stops: Sequence[_Stop], wholes: Sequence[_Stop]) -> bool:
    """Whether nothing before this place has changed."""
    pairs = zip(stops, wholes, strict=True)
    return all(torch.equal(stop.x, whole.x) for stop, whole in pairs)


def _have_equal_rows(stop: _Stop, whole: _Stop) -> bool:
    """Whether a map has as many output positions as it had."""
    assert stop.map is not None  # noqa: S101 - asked before
    assert whole.map is not None  # noqa: S101 - it waits at the same one
    return stop.map.rows == whole.map.rows


def _rows(found: LinearMap, y: Tensor, batches: int) -> Int[Tensor, " rows"]:
    """Some of the output positions, the same ones every time."""
    count, most = y.numel() // found.channels, max(64, MAX_ROWS // batches)
    if count <= most:
        return torch.arange(count, device=y.device)
    generator = torch.Generator().manual_seed(count)
    chosen = torch.randperm(count, generator=generator)[:most]
    return chosen.sort().values.to(y.device)

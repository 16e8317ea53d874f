"""Run a model, and say how far two sets of outputs are apart.

This is the only comparator and the only table of tolerances: `remove`, `compact`, the
removals of a pruner and the checks of exported files all use it.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from diffprune._core.leaves import leaves_of
from diffprune._graph import ExampleInputs, as_written, mode, own_arguments
from diffprune._surgery.product_precision import product_type
from diffprune._surgery.same_draws import same_draws, seeded


class Tolerance(NamedTuple):
    """Largest relative gap between equal computations.

    Attributes:
        here: When torch computes both.
        elsewhere: When another runtime, with kernels of its own, computes one of them.
    """

    here: float
    elsewhere: float


TOLERANCE: Final = {
    torch.float64: Tolerance(1e-10, 1e-8),
    torch.float32: Tolerance(1e-5, 1e-4),
}
_COARSE: Final = Tolerance(1e-2, 2e-2)


class Gap(NamedTuple):
    """How far two tensors are apart: at most, and relative to the largest entry."""

    absolute: float
    relative: float


_FAR: Final = Gap(torch.inf, torch.inf)


@dataclass(frozen=True)
class Certificate:
    """How far the smaller model is from the masked original.

    Attributes:
        max_absolute: Largest difference of any output, over all comparisons that could
            have failed; NaN if none could.
        max_relative: The same, relative to the largest output.
        dtype: Arithmetic the comparisons were made in.
        compared: What was compared: inputs, weights, mode.
        doubts: What could not be compared, or could not have failed, and why.
    """

    max_absolute: float
    max_relative: float
    dtype: str
    compared: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Files have lists.
        object.__setattr__(self, "compared", tuple(self.compared))
        object.__setattr__(self, "doubts", tuple(self.doubts))

    @property
    def is_vacuous(self) -> bool:
        """Whether no comparison could have failed, so that nothing was shown."""
        return math.isnan(self.max_relative)

    def __str__(self) -> str:
        doubts = "; ".join(self.doubts)
        if self.is_vacuous:
            return f"nothing was shown: {doubts or 'nothing was compared'}"
        gaps = (
            f"outputs differ by at most {self.max_absolute:.1e} absolute, "
            f"{self.max_relative:.1e} relative ({self.dtype})"
        )
        return f"{gaps}; not shown: {doubts}" if doubts else gaps


def combined(certificates: Sequence[Certificate], *doubts: str) -> Certificate:
    """One certificate for what several show, and what else there is to say.

    Examples:
        >>> one = Certificate(1.0, 0.1, "float64")
        >>> print(combined([one, Certificate(2.0, 0.0, "float32")], "a doubt"))
        outputs differ by at most 2.0e+00 absolute, 1.0e-01 relative (float32); not
        shown: a doubt
    """
    nothing = Certificate(math.nan, math.nan, "float64")
    telling = [one for one in certificates if not one.is_vacuous]
    telling = telling or [*certificates] or [nothing]
    coarsest = max(telling, key=lambda one: torch.finfo(getattr(torch, one.dtype)).eps)
    return Certificate(
        max(one.max_absolute for one in telling),
        max(one.max_relative for one in telling),
        coarsest.dtype,
        tuple(dict.fromkeys(name for one in certificates for name in one.compared)),
        tuple(dict.fromkeys([d for c in certificates for d in c.doubts] + [*doubts])),
    )


@dataclass(frozen=True)
class Comparison:
    """What came of comparing two sets of outputs.

    Attributes:
        gap: The largest gap of any pair.
        dtype: The coarsest floating-point type among what was compared.
        excess: The largest gap as a multiple of what the type of its own pair allows.
    """

    gap: Gap
    dtype: torch.dtype
    excess: float

    @property
    def is_equal(self) -> bool:
        """Whether every pair is as close as its own type allows."""
        return self.excess <= 1

    @property
    def certificate(self) -> Certificate:
        """The comparison as plain data."""
        return Certificate(*self.gap, str(self.dtype).removeprefix("torch."))


def compare(
    expected: Sequence[Tensor],
    actual: Sequence[Tensor],
    *,
    computed_in: Sequence[torch.dtype] | None = None,
    elsewhere: bool = False,
) -> Comparison:
    """Compare outputs pair by pair, each pair with the tolerance of its own type.

    Args:
        expected: Outputs of the one model.
        actual: Outputs of the other; another number of them is infinitely far.
        computed_in: For each output the arithmetic behind it, from `arithmetic`, where
            that may be coarser than its own type.
        elsewhere: Whether another runtime than torch computed `actual`.

    Examples:
        >>> one, other = torch.tensor([1.0]), torch.tensor([1.005])
        >>> compare([torch.tensor([3]), one], [torch.tensor([3]), other]).is_equal
        False
    """
    types = computed_in or [output.dtype for output in expected]
    floating = [dtype for dtype in types if dtype.is_floating_point]
    coarsest = max(floating, key=_coarseness, default=torch.float64)
    if len(expected) != len(actual):
        return Comparison(_FAR, coarsest, torch.inf)
    gaps = [gap(*pair) for pair in zip(expected, actual, strict=True)]
    allowed = [tolerance(dtype, elsewhere=elsewhere) for dtype in types]
    return Comparison(
        Gap(*(max(column) for column in zip(Gap(0.0, 0.0), *gaps, strict=True))),
        coarsest,
        max((g.relative / a for g, a in zip(gaps, allowed, strict=True)), default=0.0),
    )


def gap(expected: Tensor, actual: Tensor) -> Gap:
    """How far two tensors are apart.

    Other shapes or types, and other integers, are infinitely far; NaN equals NaN.

    Examples:
        >>> gap(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]))
        Gap(absolute=0.5, relative=0.25)
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return _FAR
    equal = (expected == actual) | (expected.isnan() & actual.isnan())
    if equal.all():
        return Gap(0.0, 0.0)
    if not (expected.is_floating_point() or expected.is_complex()):
        return _FAR
    wide = torch.complex128 if expected.is_complex() else torch.float64
    differences = (expected.to(wide) - actual.to(wide))[~equal].abs()
    absolute = float(differences.nan_to_num(nan=torch.inf, posinf=torch.inf).max())
    return Gap(absolute, absolute / (_scale(expected) or 1.0))


def _scale(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def tolerance(dtype: torch.dtype, *, elsewhere: bool = False) -> float:
    """The largest relative gap of equal computations; nothing else has one.

    Args:
        dtype: The arithmetic. Integers are equal or infinitely far, whatever this says.
        elsewhere: Whether another runtime than torch takes part.
    """
    double = {torch.complex128: torch.float64, torch.complex64: torch.float32}
    found = TOLERANCE.get(double.get(dtype, dtype), _COARSE)
    return found.elsewhere if elsewhere else found.here


def _coarseness(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


Outputs: TypeAlias = list[Tensor]


def outputs(
    model: nn.Module, inputs: ExampleInputs, *, seed: int = 0, training: bool = False
) -> Outputs:
    """All tensors and numbers the model returns, flattened; it stays as it was.

    Args:
        model: Runs without gradients, in eval mode by default.
        inputs: As for `find_groups`.
        seed: Of all random numbers.
        training: Whether to run it in train mode. What is drawn there does not depend
            on widths.
    """
    args, kwargs = own_arguments(inputs)
    draws = same_draws if training else seeded
    with (
        mode(model, training=training),
        as_written(model),
        spared(model),
        torch.no_grad(),
        draws(seed),
    ):
        # A model may ask for gradients itself, as one that returns forces does.
        return [found.detach() for found in tensors(model(*args, **kwargs))]


@contextmanager
def spared(model: nn.Module) -> Generator[None]:
    """Let a model change copies of its buffers, and numbers that are put back.

    In train mode copies of untrained parameters, too, as a momentum encoder does.
    """
    modules = list(model.modules())
    buffers = [dict(module._buffers) for module in modules]  # noqa: SLF001 - by reference
    numbers = [
        {name: value for name, value in vars(module).items() if _is_number(value)}
        for module in modules
    ]
    copies = {t: t.clone() for held in buffers for t in held.values() if t is not None}
    for module, held in zip(modules, buffers, strict=True):
        for name, tensor in held.items():
            module._buffers[name] = None if tensor is None else copies[tensor]  # noqa: SLF001
    untrained = [p for p in model.parameters() if not p.requires_grad]
    own = {p: p.data for p in untrained if model.training}
    for parameter, values in own.items():
        parameter.data = values.clone()
    try:
        yield
    finally:
        for parameter, values in own.items():
            parameter.data = values
        for module, held, known in zip(modules, buffers, numbers, strict=True):
            module._buffers.clear()  # noqa: SLF001
            module._buffers.update(held)  # noqa: SLF001
            vars(module).update(known)


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def tensors(tree: object) -> Outputs:
    """All tensors and numbers in nested lists, tuples and dicts."""
    leaves = pytree.tree_leaves(tree)
    return [
        _dense(torch.as_tensor(leaf))
        for leaf in leaves
        if isinstance(leaf, Tensor | bool | int | float)
    ]


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def arithmetic(
    model: nn.Module, inputs: ExampleInputs, *, training: bool = False
) -> list[torch.dtype]:
    """For each of the `outputs`, the least precise type it was computed through.

    A model in double precision may still cast to float32 here and there, and hardware
    may round float32 further.
    """
    with _Precision() as precision:
        returned = outputs(model, inputs, training=training)
    return [precision.of(tensor) for tensor in returned]


class _Precision(TorchDispatchMode):
    """Follows, from op to op, the coarsest type behind every tensor."""

    def __init__(self) -> None:
        super().__init__()
        self._behind = WeakTensorKeyDictionary()

    def of(self, tensor: Tensor) -> torch.dtype:
        """The coarsest type that a tensor has, or was computed through."""
        own = tensor.dtype if tensor.is_floating_point() else torch.float64
        behind: torch.dtype = self._behind.get(tensor) or own
        return max(own, behind, key=_coarseness)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the op returns
        del types
        result = func(*args, **(kwargs or {}))
        seen = leaves_of(Tensor, (args, kwargs, result))
        found = [*map(self.of, seen)]
        found += [
            product_type(func, t.device) for t in seen if t.dtype is torch.float32
        ]
        coarsest = max(found, key=_coarseness, default=torch.float64)
        for tensor in leaves_of(Tensor, result):  # also what it changed in place
            self._behind[tensor] = coarsest
        return result

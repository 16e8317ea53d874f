"""Whether a saved state fits an optimizer, tensor by tensor.

The kernels of torch's optimizers trust their state: one of another shape is read and
written past its end. Everything is therefore checked before anything is touched, and
which kernel runs is never a file's to decide.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Adafactor, Optimizer, SparseAdam

from diffprune.errors import ArgumentError

KERNEL: Final = ("fused", "foreach", "capturable", "differentiable")
"""Options that choose what code runs; an optimizer keeps its own."""

_SCALARS: Final = {"step", "mu_product", "mu", "eta"}
"""What torch's own optimizers remember as one number per parameter."""


def fitted(
    optimizer: Optimizer, saved: Mapping[str, Any], like: Sequence[tuple[str, Tensor]]
) -> dict[str, Any]:
    """A saved state as this optimizer may load it.

    Args:
        optimizer: What is to continue.
        saved: In the form of `Optimizer.state_dict`, from anywhere.
        like: For every parameter of the optimizer, in order, its name, and a tensor of
            the shape and type that it will have.

    Raises:
        ArgumentError: If something in it does not fit; the message says what.
    """
    try:
        numbers = _numbers(saved, optimizer)
        for number, (name, parameter) in zip(numbers, like, strict=True):
            for key, value in saved["state"].get(number, {}).items():
                _check_value(optimizer, name, parameter, key, value)
        _check_same_keys(saved["state"], numbers, like)
        pairs = zip(optimizer.param_groups, saved["param_groups"], strict=True)
        groups = [_with_own_kernel(own, group) for own, group in pairs]
        if _is_of_torch(optimizer):
            places = dict(zip(numbers, like, strict=True))
            for group in groups:
                _check_tried(optimizer, group, places, saved["state"])
    except ArgumentError:
        raise
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise _damaged(str(error)) from error
    return {"state": saved["state"], "param_groups": groups}


def _numbers(saved: Mapping[str, Any], optimizer: Optimizer) -> list[int]:
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    found = [len(group["params"]) for group in saved["param_groups"]]
    expected = [len(group["params"]) for group in optimizer.param_groups]
    if found != expected:
        raise ArgumentError(
            f"the saved optimizer has groups of {found} parameters, this one of "
            f"{expected}.\nMake it as in the saved run: "
            "`pruner.parameter_groups(...)`."
        )
    if len(set(numbers)) != len(numbers) or not set(saved["state"]) <= set(numbers):
        raise _damaged("it remembers something of no parameter")
    return numbers


def _check_value(
    optimizer: Optimizer, name: str, parameter: Tensor, key: object, value: object
) -> None:
    if key in _SCALARS:
        _check_scalar(name, key, value)
    if not isinstance(value, Tensor):
        return
    is_trusting = _is_trusting(optimizer)
    is_scalar = value.numel() == 1 and (key in _SCALARS or not is_trusting)
    is_reduced = not is_trusting and _is_reduced(value.shape, parameter.shape)
    if not (is_scalar or is_reduced or value.shape == parameter.shape):
        raise _damaged(
            f"it remembers `{key}` of shape {list(value.shape)} for `{name}` of shape "
            f"{list(parameter.shape)}"
        )
    if value.is_complex() != parameter.is_complex():
        raise _damaged(f"it remembers `{key}` of `{name}` as {value.dtype}")


def _check_scalar(name: str, key: object, value: object) -> None:
    """Refuse a count of steps, or a factor, that is no number from zero on."""
    is_one = _is_number(value) or (isinstance(value, Tensor) and value.numel() == 1)
    if isinstance(value, Tensor) and not is_one:
        return  # of a wrong shape, which is said elsewhere
    if not is_one or not 0 <= float(value) < math.inf:  # pyright: ignore[reportArgumentType] - it is one
        raise _damaged(f"it remembers {value!r} as `{key}` of `{name}`")


def _is_trusting(optimizer: Optimizer) -> bool:
    """Whether it may run torch's kernels, which do not look at shapes."""
    return not isinstance(optimizer, Adafactor) and any(
        kind is not Optimizer and kind.__module__.startswith("torch.optim")
        for kind in type(optimizer).__mro__
    )


def _is_reduced(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether it is a shape with some dimensions reduced to one."""
    pairs = zip(shape, to, strict=False)
    return len(shape) == len(to) and all(n in (1, full) for n, full in pairs)


def _check_same_keys(
    state: Mapping[int, Mapping[str, Any]],
    numbers: Sequence[int],
    like: Sequence[tuple[str, Tensor]],
) -> None:
    """Refuse a parameter of which other things are remembered than of those alike."""
    first: dict[int, dict[str, bool]] = {}
    for number, (name, parameter) in zip(numbers, like, strict=True):
        values = state.get(number, {})
        keys = {key: isinstance(value, Tensor) for key, value in values.items()}
        others = first.setdefault(parameter.ndim, keys) if keys else keys
        if keys.keys() != others.keys():
            raise _damaged(
                f"it remembers {sorted(keys)} of `{name}`, and {sorted(others)} of "
                "others"
            )
        if odd := [key for key, is_tensor in keys.items() if is_tensor != others[key]]:
            raise _damaged(f"`{odd[0]}` is a tensor for some, and not for `{name}`")


def _is_of_torch(optimizer: Optimizer) -> bool:
    """Whether another one can be made and stepped, as all of torch's can but two."""
    is_torch = type(optimizer).__module__.startswith("torch.optim")
    return is_torch and not isinstance(optimizer, LBFGS | SparseAdam)


def _check_tried(
    optimizer: Optimizer,
    group: Mapping[str, Any],
    like: Mapping[int, tuple[str, Tensor]],
    state: Mapping[int, Mapping[str, Any]],
) -> None:
    """Let a new optimizer with these options tell what they are worth.

    It refuses options without meaning: a negative learning rate, or a kernel that does
    not go with them. After a step it remembers all that a saved one must remember.

    Args:
        optimizer: What is to continue.
        group: Options of one of its groups.
        like: Name and likeness of each parameter, by number.
        state: What is remembered of each parameter, by number.
    """
    needed = dict[int, set[str]]()
    for number in group["params"]:
        (name, parameter), values = like[number], state.get(number, {})
        if parameter.ndim not in needed:
            needed[parameter.ndim] = _remembered(optimizer, group, parameter)
        found = {k for k, v in values.items() if k in _SCALARS or isinstance(v, Tensor)}
        if values and (lacking := needed[parameter.ndim] - found):
            raise _damaged(f"it remembers no tensor `{min(lacking)}` of `{name}`")


def _remembered(
    optimizer: Optimizer, group: Mapping[str, Any], like: Tensor
) -> set[str]:
    """What such an optimizer holds as a tensor after a step."""
    kind: Any = type(optimizer)
    known = inspect.signature(kind).parameters.keys() - {"params"}
    options = {key: value for key, value in group.items() if key in known}
    one = torch.zeros((1,) * like.ndim, dtype=like.dtype, device="cpu")
    parameter = nn.Parameter(one)
    parameter.grad = one.clone()
    kind([parameter], **options)
    plain = {key: value for key, value in group.items() if key not in KERNEL}
    new = kind([parameter])
    new.load_state_dict({"state": {}, "param_groups": [{**plain, "params": [0]}]})
    try:
        new.step()
    except KeyError as error:
        raise _damaged(f"it has no option {error}") from error
    state = new.state[parameter]
    return {key for key, value in state.items() if isinstance(value, Tensor)}


def _with_own_kernel(
    own: Mapping[str, Any], saved: Mapping[str, Any]
) -> dict[str, Any]:
    for key in own.keys() & saved.keys() - {"params", *KERNEL}:
        if not _is_alike(own[key], saved[key]):
            raise _damaged(f"its `{key}` is {saved[key]!r}, where {own[key]!r} was")
    options = {key: value for key, value in saved.items() if key not in KERNEL}
    return options | {key: own[key] for key in KERNEL if key in own}


def _is_alike(own: object, saved: object) -> bool:
    """Whether a value can stand for another: a number for a number, text for text."""
    if own is None or isinstance(own, Tensor):
        return True
    if isinstance(own, tuple | list):
        many: Any = saved if isinstance(saved, tuple | list) else ()
        return len(many) == len(own) and all(map(_is_alike, own, many))
    if _is_number(own):
        return isinstance(saved, Tensor) or (_is_number(saved) and math.isfinite(saved))
    return saved is None or type(own) is type(saved)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _damaged(what: str) -> ArgumentError:
    return ArgumentError(
        f"the saved optimizer is damaged, or was made for something else: {what}.\n"
        "Nothing was loaded."
    )

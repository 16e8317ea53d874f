"""What to do about a model that runs and cannot be traced."""

from collections.abc import Mapping
from typing import Final

from torch import nn

from diffprune._graph.lines import line_of_failure
from diffprune.errors import TraceError

_EXPERTS: Final = (
    "Its experts run one by one, those alone that some token chose. Let them run at "
    'once while it is traced and cut: `model.set_experts_implementation("batched_mm")`.'
)
_BRANCHES: Final = (
    "Its forward probably branches on the values of a tensor. If that is only a check, "
    "leave it out here: `if not torch.compiler.is_exporting(): ...`. If not, prune the "
    "submodules that do not branch, with their own example inputs."
)
_SIZES: Final = (
    "A size in its forward is computed from the values of a tensor, as "
    "`pack_padded_sequence` does. Pad without packing while the model is traced, "
    "or prune the submodules around it, with their own example inputs."
)
_DERIVATIVES: Final = (
    "Its forward calls `torch.func` to differentiate a part of itself. Prune that "
    "part, with its own example inputs; a gated one may be differentiated."
)
_HINTS: Final[Mapping[str, str]] = {
    "cache_utils": (
        "Its forward returns a cache, for generating text. Leave it out of what is "
        'looked at: `example_inputs={..., "use_cache": False}`.'
    ),
    "not a known type": (
        "Its forward returns an object that torch does not look into. If it is a "
        "dataclass, make it known: `torch.export.register_dataclass(TheClass)`. If "
        "not, as with a distribution, return its tensors in a tuple or a dict, and "
        "make the object of them outside."
    ),
    "functorch": _DERIVATIVES,
    "object has no attribute 'constant'": _DERIVATIVES,
    "_ctc_loss": (
        "Its forward computes a CTC loss, whose size depends on values. Return the log "
        "probabilities where it is traced, as without targets, and compute it outside."
    ),
    "but got FakeTensor": _SIZES,
    "Could not extract specialized integer": _SIZES,
    "fake tensor in the exported program": (
        "Its forward calls `torch.autograd.grad`, or `backward`. Prune the submodules "
        "that do not, with their own example inputs."
    ),
    "higher order operator": (
        "Its forward calls `torch.cond` or a function like it, which chooses what runs "
        "by the values of a tensor. Prune the submodules, with their own example "
        "inputs."
    ),
}


def explained(model: nn.Module, failure: Exception) -> TraceError:
    """Say what to do about a model that runs and cannot be traced."""
    said = str(failure)
    usual = _EXPERTS if _has_eager_experts(model) else _BRANCHES
    advice = next((hint for words, hint in _HINTS.items() if words in said), usual)
    line = line_of_failure(failure)
    place = f" ({line})" if line else ""
    return TraceError(
        f"{type(model).__name__} cannot be traced: {_first_line(failure)}{place}\n"
        f"{advice}"
    )


def _has_eager_experts(model: nn.Module) -> bool:
    """Whether a model of transformers visits its experts one by one."""
    experts = (module for module in model.modules() if hasattr(module, "_apply_gate"))
    configs = (getattr(module, "config", None) for module in experts)
    return any(getattr(c, "_experts_implementation", "") == "eager" for c in configs)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), repr(error))

"""The paper's g: samples of anything become approximate Bernoulli samples."""

from typing import NamedTuple

import torch
from torch import Tensor

from diffprune._core.door import door
from diffprune._core.types import Bool, Extended, Float, Part
from diffprune.gates import checks
from diffprune.gates.functional import Activation, activate, gate_values
from diffprune.gates.large import lean_transform
from diffprune.gates.topk import largest


class Origin(NamedTuple):
    """Where all values of open units are one.

    Attributes:
        logits: One per unit.
        background: The log-mass, seen from there, of softmax units that were removed.
    """

    logits: Float[Tensor, "*#batch units"]
    background: Float[Tensor, "*#batch"]


# From here on, memory traffic costs more than the calls it takes to save it: a training
# step of a gated 1024x1024 weight takes 26 ms instead of 43 ms, a 256x256 one the same.
MANY_UNITS = 65_536


@door
def g(
    sample: Float[Tensor, "*batch units"],
    u: Activation = "sigmoid",
    beta: Part | Float[Tensor, "#units"] = 0.5,
    zeta: Extended | Float[Tensor, ""] = 0.0,
) -> Float[Tensor, "*batch units"]:
    r"""Turn a sample into an approximate Bernoulli sample (eq. eff_a to eff_e).

    Args:
        sample: Any real numbers, one gate along the last dimension.
        u: Maps the sample into (0, 1): `"sigmoid"`, `"softmax"` or a callable.
        beta: Units with $u(s) \le \beta$ are closed; one number, or one per unit.
        zeta: How close open values lie to one; at least zero.

    Examples:
        >>> g(torch.tensor([-3.0, 0.0, 2.0]), beta=0.2)
        tensor([0.0000, 0.8096, 1.1904])
    """
    if not torch.compiler.is_compiling():
        checks.check_sample(sample, beta=beta, zeta=zeta)
    nothing = torch.full((), -torch.inf, dtype=sample.dtype, device=sample.device)
    threshold = torch.as_tensor(beta, dtype=sample.dtype, device=sample.device)
    spread = torch.as_tensor(zeta, dtype=sample.dtype, device=sample.device).neg().exp()
    return transform(sample, u, nothing, threshold, spread, min_open=0)


def transform(
    sample: Float[Tensor, "*batch units"],
    u: Activation,
    background: Float[Tensor, "*#batch"],
    threshold: Float[Tensor, "*#batch #units"],
    spread: Float[Tensor, "*#batch 1"],
    *,
    min_open: int,
    origin: Origin | None = None,
) -> Float[Tensor, "*batch units"]:
    """`g` with removed units in the background and a floor of units that stay open.

    With an origin, values see how far the sample is from it: there, all are one. What
    is open is decided as ever.
    """
    many = sample.shape[-1] >= MANY_UNITS and not torch.compiler.is_compiling()
    if many and not callable(u):
        lean = (sample, u, background, threshold, spread, min_open)
        return lean_transform(*lean, *(origin or (None, None)))
    activation = activate(sample, u, background)
    open_now = is_open(sample, activation, u, threshold, min_open=min_open)
    if origin is not None:
        activation = activate(sample - origin.logits, u, origin.background)
    return gate_values(activation, open_now.to(activation.dtype), spread)


def is_open(
    sample: Float[Tensor, "*batch units"],
    activation: Float[Tensor, "*batch units"],
    u: Activation,
    threshold: Float[Tensor, "*#batch #units"],
    *,
    min_open: int,
) -> Bool[Tensor, "*batch units"]:
    """Where the activation exceeds the threshold, or the floor holds a unit open."""
    # Booleans need no `no_grad`, and one would nearly double the time of a trace.
    above = activation > threshold
    if not min_open:
        return above
    # Samples rank like their activations, and still do where those have rounded to 1.
    held = largest((activation if callable(u) else sample).detach(), min_open)
    return above.scatter(-1, held, value=True)

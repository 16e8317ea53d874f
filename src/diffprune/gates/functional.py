r"""The mathematics of gates, as pure functions.

A gate has one value per *unit*; units lie along the last dimension, and any leading
dimensions are independent gates. Every choice of `u` shares one path:

    sample --> activation u(s) --> open where above beta --> values    [forward]
           --> log-odds --> margin (positive iff open) --> probability [penalty]

Below, `background` is the log-mass of softmax units that were removed for good.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, logsigmoid

from diffprune._core.arguments import shown
from diffprune._core.types import Float
from diffprune.errors import ArgumentError

Activation = Literal["sigmoid", "softmax"] | Callable[[Tensor], Tensor]


def activate(
    sample: Float[Tensor, "*batch units"],
    u: Activation,
    background: Float[Tensor, "*batch"],
) -> Float[Tensor, "*batch units"]:
    """The paper's $u(s)$, in (0, 1): how useful each unit claims to be."""
    if u == "sigmoid":
        return sample.sigmoid()
    if u == "softmax":
        removed = background.expand(sample.shape[:-1]).unsqueeze(-1).to(sample)
        return torch.cat([sample, removed], -1).softmax(-1)[..., :-1]
    made = u(sample)
    if not isinstance(made, Tensor) or made.shape != sample.shape:  # pyright: ignore[reportUnnecessaryIsInstance] - users are not checked
        raise ArgumentError(
            f"u must return a number for each of {tuple(sample.shape)} logits, got "
            f"{shown(made)}."
        )
    return made


def log_odds(
    sample: Float[Tensor, "*batch units"],
    u: Activation,
    background: Float[Tensor, "*batch"],
) -> Float[Tensor, "*batch units"]:
    """Log-odds of `activate`, finite where the activation itself rounds to 0 or 1."""
    if u == "sigmoid":
        return sample
    if u == "softmax":
        return softmax_log_odds(sample, background)
    activation = u(sample)
    return activation.logit(eps=torch.finfo(activation.dtype).eps)


def softmax_log_odds(
    sample: Float[Tensor, "*batch units"], background: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch units"]:
    r"""Log-odds of a softmax: $s_k - \log(e^b + \sum_{l \ne k} e^{s_l})$, in O(units).

    Leaving out unit k from the total is `log1p(-p_k)`, which is safe for all units but
    the largest: only that one can hold more than half of the mass. Its rivals are
    therefore added up on their own.

    Examples:
        >>> softmax_log_odds(torch.tensor([1e4, 0.0]), torch.tensor(-torch.inf))
        tensor([ 10000., -10000.])
    """
    top = sample.detach().argmax(-1, keepdim=True)
    is_top = torch.arange(sample.shape[-1], device=sample.device) == top
    removed = background.unsqueeze(-1).to(sample)
    rivals = torch.where(is_top, removed, sample).logsumexp(-1, keepdim=True)
    largest = sample.gather(-1, top)
    log_p = (sample - largest) + logsigmoid(largest - rivals)
    # Masked before the exponential: the gradient of log1p at p = 1 is infinite.
    log_rest = torch.log1p(-log_p.masked_fill(is_top, -torch.inf).exp())
    return torch.where(is_top, largest - rivals, log_p - log_rest)


def margin(
    log_odds: Float[Tensor, "*batch units"], threshold: Float[Tensor, "*#units"]
) -> Float[Tensor, "*batch units"]:
    """Signed distance from the threshold, in log-odds. Positive iff open."""
    return log_odds - threshold.logit()


def open_probability(
    margin: Float[Tensor, "*batch units"], sigma: float
) -> Float[Tensor, "*batch units"]:
    """P(z > 0) when the logit carries Gaussian noise of standard deviation `sigma`.

    Above 1/2 exactly where the margin is positive, and accurate in the lower tail,
    where one minus the upper one would round to zero.

    Examples:
        >>> open_probability(torch.tensor([-10.0, 0.0, 10.0]), sigma=1.0)
        tensor([7.6199e-24, 5.0000e-01, 1.0000e+00])
    """
    return 0.5 * torch.erfc(margin / (-sigma * math.sqrt(2)))


def gate_values(
    activation: Float[Tensor, "*batch units"],
    is_open: Float[Tensor, "*batch units"],
    spread: Float[Tensor, ""],
) -> Float[Tensor, "*batch units"]:
    """Exact zeros for closed units, values of mean one for the open (eq. eff_d, eff_e).

    Args:
        activation: $u(s)$; subtracting beta first would not change its deviations.
        is_open: One for open units, zero for closed ones, in the activation's dtype.
        spread: $e^{-zeta}$; at zero the gate is binary.

    Examples:
        >>> p, is_open = torch.tensor([0.1, 0.4, 0.8]), torch.tensor([0.0, 1.0, 1.0])
        >>> gate_values(p, is_open, torch.tensor(1.0))
        tensor([0.0000, 0.8000, 1.2000])
    """
    return torch.addcmul(is_open, centre_open(activation, is_open), spread)


def centre_open(
    x: Float[Tensor, "*batch units"], is_open: Float[Tensor, "*batch units"]
) -> Float[Tensor, "*batch units"]:
    """Deviations of the open entries from their mean; zero elsewhere.

    An orthogonal projection, so it is its own gradient.
    """
    # At least one: a gate without open units is all zeros, not 0 / 0.
    count = is_open.sum(-1, keepdim=True).clamp(min=1)
    kept = x * is_open
    return torch.addcmul(kept, kept.sum(-1, keepdim=True) / count, is_open, value=-1)


def reflect(raw: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The constraint zeta >= 0, as a mirror: |raw|, whose slope is never zero.

    Zeta starts on its bound. A softplus only gets there where its slope has vanished,
    and a clamp gives no way back once a step has crossed; a mirror keeps full slope,
    at zero too, where that of `abs` is zero.
    """
    return leaky_relu(raw, negative_slope=-1.0)

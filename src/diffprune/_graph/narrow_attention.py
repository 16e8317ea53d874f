"""An `nn.MultiheadAttention` whose heads can be fewer, and narrower, than they were.

torch computes the width of a head as `embed_dim // num_heads`, and the number of rows
of its projection as `3 * embed_dim`: a layer that has lost a head cannot run its own
forward. `NarrowAttention` has the same parameters under the same names, takes the same
arguments and returns the same, but takes the widths of its heads from attributes of
their own. A model is traced with it in the place of `nn.MultiheadAttention`, and a
layer becomes one when it is cut.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffprune._core.types import Float

LATENT: Final = ("head_vdim", "scale_width")
"""Integers of a `NarrowAttention` that `nn.MultiheadAttention` does not have."""


class NarrowAttention(nn.MultiheadAttention):
    """Attention that computes what `nn.MultiheadAttention` does, with any heads.

    It is made from such a layer by `narrow_`, never built.

    Attributes:
        num_heads: How many heads there are.
        head_dim: How wide queries and keys of a head are.
        head_vdim: How wide the values of a head are.
        scale_width: How wide the head was at first: products of queries and keys are
            still divided by the root of it.
    """

    num_heads: int
    head_dim: int
    head_vdim: int
    scale_width: int

    @property
    def _qkv_same_embed_dim(self) -> bool:
        """Torch asks this whether its fused kernels may run; they cannot."""
        return False

    @_qkv_same_embed_dim.setter
    def _qkv_same_embed_dim(self, value: bool) -> None:
        vars(self)["_qkv_same_embed_dim"] = value

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 - as in `object`
        """Name the class that it was made from: one made for a subclass has no home."""
        _, _, *state = cast("tuple[Any, ...]", super().__reduce_ex__(protocol))
        return (_blank, (_made_from(type(self)),), *state)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,  # noqa: FBT001, FBT002 - torch's own signature
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,  # noqa: FBT001, FBT002 - as above
        is_causal: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, as `nn.MultiheadAttention.forward` does."""
        options = _Options(need_weights, average_attn_weights, is_causal)
        if query.is_nested:
            return self._nested(query, key, value, options)
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal is a hint about attn_mask, which is missing.")
        if query.dim() == 3:
            return self._attend(query, key, value, attn_mask, key_padding_mask, options)
        query, key, value = self._alone(query, key, value)
        padding = None if key_padding_mask is None else key_padding_mask[None]
        out, weights = self._attend(query, key, value, attn_mask, padding, options)
        return out.squeeze(self._batch), None if weights is None else weights.squeeze(0)

    @property
    def _batch(self) -> int:
        """Which dimension counts the examples."""
        return 0 if self.batch_first else 1

    def _alone(self, *sequences: Tensor) -> list[Tensor]:
        """One example as a batch of one; the same tensor stays the same."""
        made = {id(x): x.unsqueeze(self._batch) for x in sequences}
        return [made[id(x)] for x in sequences]

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None,
        padding: Tensor | None,
        options: "_Options",
    ) -> tuple[Tensor, Tensor | None]:
        self._check(query, key, value)
        q, k, v = self._project(query, key, value)
        q, k = (self._heads(x, self.head_dim, self._batch) for x in (q, k))
        v = self._heads(v, self.head_vdim, self._batch)
        is_causal = options.is_causal and padding is None and not options.need_weights
        options = replace(options, is_causal=is_causal)
        mask = None if is_causal else self._mask(attn_mask, padding, query.dtype)
        mixed, weights = self._mix(q, *self._longer(k, v, mask), options)
        if weights is not None and options.average:
            weights = weights.mean(dim=1)
        return self._join(mixed), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """The widths that come in are those that the layer says it takes."""
        widths = {"embed_dim": query, "kdim": key, "vdim": value}
        for name, tensor in widths.items():
            if tensor.shape[-1] != getattr(self, name):
                raise AssertionError(
                    f"expected {name} to be {getattr(self, name)}, got "
                    f"{tensor.shape[-1]}"
                )

    def _widths(self) -> list[int]:
        keys = self.num_heads * self.head_dim
        return [keys, keys, self.num_heads * self.head_vdim]

    def _project(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> Iterable[Float[Tensor, "..."]]:
        """Queries, keys and values of all heads, beside each other."""
        weight = cast("Tensor | None", self.in_proj_weight)
        bias = cast("Tensor | None", self.in_proj_bias)
        if weight is not None and query is key and key is value:
            return F.linear(query, weight, bias).split(self._widths(), dim=-1)
        weights = (
            (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            if weight is None
            else weight.split(self._widths())
        )
        biases = [None] * 3 if bias is None else bias.split(self._widths())
        return map(F.linear, (query, key, value), weights, biases)

    def _heads(
        self, x: Tensor, width: int, batch: int
    ) -> Float[Tensor, "batch heads tokens dim"]:
        x = x.unflatten(-1, (self.num_heads, width))
        return x.permute(batch, 2, 1 - batch, 3)

    def _longer(
        self, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Add the tokens that the layer itself brings: learnt ones, and zeros."""
        if self.bias_k is not None and self.bias_v is not None:
            more_k = self._heads(self.bias_k, self.head_dim, 1)
            more_v = self._heads(self.bias_v, self.head_vdim, 1)
            k = torch.cat((k, more_k.expand(k.shape[0], -1, -1, -1)), dim=2)
            v = torch.cat((v, more_v.expand(v.shape[0], -1, -1, -1)), dim=2)
            mask = None if mask is None else F.pad(mask, (0, 1))
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
            mask = None if mask is None else F.pad(mask, (0, 1))
        return k, v, mask

    def _mask(
        self, attn_mask: Tensor | None, padding: Tensor | None, dtype: torch.dtype
    ) -> Float[Tensor, "... tokens sources"] | None:
        """What is added to the scores: both masks as numbers."""
        if attn_mask is not None:
            attn_mask = _as_numbers(attn_mask, dtype)
            if attn_mask.dim() == 3:
                attn_mask = attn_mask.unflatten(0, (-1, self.num_heads))
        if padding is None:
            return attn_mask
        padding = _as_numbers(padding, dtype)[:, None, None, :]
        return padding if attn_mask is None else attn_mask + padding

    def _mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: "_Options"
    ) -> tuple[Tensor, Tensor | None]:
        """What each head returns, and with what weights, if these are asked for."""
        scale = self.scale_width**-0.5
        dropout = self.dropout if self.training else 0.0
        if not options.need_weights:
            mixed = F.scaled_dot_product_attention(
                q, k, v, mask, dropout, options.is_causal, scale=scale
            )
            return mixed, None
        scores = (q * scale) @ k.transpose(-2, -1)
        scores = scores if mask is None else scores + mask
        weights = F.dropout(scores.softmax(-1), dropout)
        return weights @ v, weights

    def _join(self, x: Tensor) -> Tensor:
        """One width again, projected; batch or tokens first, as they came."""
        order = (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3)
        joined = x.permute(order).flatten(2)
        return F.linear(joined, self.out_proj.weight, self.out_proj.bias)

    def _nested(
        self, query: Tensor, key: Tensor, value: Tensor, options: "_Options"
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within sequences of different lengths, as an encoder packs them."""
        if query is not key or key is not value:
            raise AssertionError("nested tensors are for attention to oneself.")
        padded = query.to_padded_tensor(0.0)
        lengths = query._nested_tensor_size()[:, :1]  # noqa: SLF001 # pyright: ignore - torch has no public name
        is_token = torch.arange(padded.shape[1]) < lengths
        is_token = is_token.to(padded.device)
        out, weights = self._attend(padded, padded, padded, None, ~is_token, options)
        nested = torch._nested_tensor_from_mask(out, is_token, mask_check=False)  # noqa: SLF001 # pyright: ignore - what the encoder itself calls
        return nested, weights


@dataclass(frozen=True)
class _Options:
    need_weights: bool
    average: bool
    is_causal: bool = False


def _as_numbers(mask: Tensor, dtype: torch.dtype) -> Float[Tensor, "..."]:
    """A mask to be added; True hides."""
    if mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)


def latent_sizes(module: nn.Module) -> dict[str, int]:
    """Integers that the layer gets when it is cut, with the values it starts from."""
    if not isinstance(module, nn.MultiheadAttention) or _is_narrow(module):
        return {}
    return dict.fromkeys(LATENT, module.head_dim)


def narrow_(module: nn.Module) -> None:
    """Make attention a layer whose heads can be cut; it computes what it did."""
    vars(module).update(latent_sizes(module))
    kind = cast("type[nn.MultiheadAttention]", type(module))
    module.__class__ = _narrow_kind(kind)


def narrow_named_(model: nn.Module, names: Iterable[str]) -> None:
    """Prepare the attention that holds one of these tensors or attributes for a cut."""
    names = tuple(names)
    for path, module in model.named_modules(remove_duplicate=False):
        if latent_sizes(module) and any(name.startswith(f"{path}.") for name in names):
            narrow_(module)


@contextmanager
def narrow(model: nn.Module) -> Generator[None]:
    """Let all attention of a model compute with heads of any width; undo it after."""
    found = [module for module in model.modules() if latent_sizes(module)]
    kinds = [type(module) for module in found]
    try:
        for module in found:
            narrow_(module)
        yield
    finally:
        for module, kind in zip(found, kinds, strict=True):
            widen_(module, kind)


def widen_(module: nn.Module, kind: type[nn.Module]) -> None:
    """Make a layer of its first kind again; its widths are those of that time."""
    if type(module) is not kind:
        module.__class__ = kind
        for name in LATENT:
            vars(module).pop(name, None)


def _is_narrow(module: nn.Module) -> bool:
    return isinstance(module, NarrowAttention)


@cache
def _narrow_kind(kind: type[nn.MultiheadAttention]) -> type[NarrowAttention]:
    """The class for a layer of this one; what a user's class adds goes on working."""
    if kind is nn.MultiheadAttention:
        return NarrowAttention
    return type(f"Narrow{kind.__name__}", (kind, NarrowAttention), {})  # pyright: ignore[reportGeneralTypeIssues] - `kind` is a subclass


def _made_from(kind: type[nn.Module]) -> type[nn.Module]:
    """The class that `_narrow_kind` was given."""
    return nn.MultiheadAttention if kind is NarrowAttention else kind.__bases__[0]


def _blank(kind: type[nn.MultiheadAttention]) -> NarrowAttention:
    narrow_kind = _narrow_kind(kind)
    return narrow_kind.__new__(narrow_kind)

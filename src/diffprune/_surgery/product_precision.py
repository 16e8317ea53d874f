"""How precisely torch multiplies and adds numbers of single precision here.

Hardware may round the factors of a product to fewer digits first: TF32 keeps as many as
float16, and that is how GPUs convolve by default. Two widths may then differ by more
than float32 rounds, though both are right.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

_MATRICES: Final = (
    "mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "linear", "_trilinear"
)  # fmt: skip
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_MATRICES, "matmul"),
    "convolution": "conv",
    "_convolution": "conv",
    "_cudnn_rnn": "rnn",
    "mkldnn_rnn_layer": "rnn",
}
_ATTENTION: Final = ("_scaled_dot_product", "_efficient_attention", "_flash_attention")
_ROUNDED: Final[Mapping[str, torch.dtype]] = {
    "tf32": torch.float16,
    "bf16": torch.bfloat16,
}


def product_type(op: Callable[..., Any], device: torch.device) -> torch.dtype:
    """The type whose digits the factors of an op have, if they are of float32.

    Args:
        op: Any op; those that multiply no sums keep float32.
        device: Where it runs.

    Examples:
        >>> product_type(torch.ops.aten.mm.default, torch.device("cpu"))
        torch.float32
        >>> product_type(torch.ops.aten.convolution.default, torch.device("cuda"))
        torch.float16
    """
    name = getattr(getattr(op, "overloadpacket", None), "__name__", "")
    kind = "matmul" if name.startswith(_ATTENTION) else _KINDS.get(name)
    if kind is None:
        return torch.float32
    return _ROUNDED.get(_allowed(device.type, kind), torch.float32)


def _allowed(device: str, kind: str) -> str:
    """What torch was told about products of a kind, by the user or by default."""
    backends = torch.backends
    on_gpu = backends.cuda if kind == "matmul" else backends.cudnn
    backend = {"cpu": backends.mkldnn, "cuda": on_gpu}.get(device)
    return getattr(getattr(backend, kind, None), "fp32_precision", "")

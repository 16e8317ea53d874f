"""Multiply-accumulates of each operation in a run."""

from typing import Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class MacCounter(TorchDispatchMode):
    """Collects one count per convolution or matrix product, in order of execution.

    Examples:
        >>> import torch
        >>> with MacCounter() as counter:
        ...     _ = torch.ones(2, 3) @ torch.ones(3, 5)
        >>> counter.calls
        [30]
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        """Run `func` and note half of its floating-point operations."""
        del types
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        flops = flop_registry.get(func.overloadpacket)
        if flops is not None:
            self.calls.append(flops(*args, **kwargs, out_val=out) // 2)
        return out

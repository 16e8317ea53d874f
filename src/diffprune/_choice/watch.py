"""Watch the calls of torch functions that a running model makes.

A handler gets every call before it runs, with its tensors, and returns its result. It
can look at the tensors, replace them, or wait. Composed functions such as
`F.multi_head_attention_forward` are entered: the handler sees the calls inside.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final, TypeAlias, final

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from diffprune._core.leaves import leaves_of

Handler: TypeAlias = Callable[["FunctionCall"], Any]

_COMPOSED: Final = frozenset(
    {"batch_norm", "instance_norm", "multi_head_attention_forward"}
)
_OTHER_NAMES: Final[Mapping[str, str]] = {"__matmul__": "matmul"}


@dataclass(frozen=True, eq=False)
class FunctionCall:
    """One call of a torch function.

    Attributes:
        name: Name of the function, as ATen has it.
        args: Positional arguments.
        kwargs: Keyword arguments.
        function: The function.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    function: Callable[..., Any]

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments, lists flattened, in order."""
        return leaves_of(Tensor, (self.args, dict(self.kwargs)))

    def argument(self, place: int, name: str, default: object = None) -> Any:  # noqa: ANN401 - as the op takes it
        """One argument, whether it was given by position or by name."""
        if place < len(self.args):
            return self.args[place]
        return self.kwargs.get(name, default)

    def run(self) -> Any:  # noqa: ANN401 - whatever the function returns
        """Do what was called for."""
        return self.function(*self.args, **self.kwargs)

    def run_with(self, old: Tensor, new: Tensor) -> Any:  # noqa: ANN401 - as above
        """Do it with another tensor in the place of one."""
        args, kwargs = pytree.tree_map(
            lambda leaf: new if leaf is old else leaf, (self.args, dict(self.kwargs))
        )
        return self.function(*args, **kwargs)


@final
class Watch(TorchFunctionMode):
    """Give every call of a torch function to a handler, within a `with` block.

    Args:
        handler: Gets each call and returns its result.

    Examples:
        >>> import torch
        >>> names = []
        >>> def note(call):
        ...     names.append(call.name)
        ...     return call.run()
        >>> with Watch(note):
        ...     _ = torch.relu(torch.ones(2)) @ torch.ones(2)
        >>> names
        ['ones', 'relu', 'ones', 'matmul']
    """

    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self._handler = handler

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        del types
        if isinstance(func, FunctionType) and _is_composed(func):
            with self:
                return _inside(func)(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        name = _OTHER_NAMES.get(name, name)
        return self._handler(FunctionCall(name, args, kwargs or {}, func))


def _is_composed(function: FunctionType) -> bool:
    is_torchs = function.__module__ == "torch.nn.functional"
    return is_torchs and function.__name__ in _COMPOSED


def _inside(function: FunctionType) -> Callable[..., Any]:
    """The same function, without the question whether somebody watches it."""
    names = {
        name: (lambda *_: False) if name.startswith("has_torch_function") else value
        for name, value in function.__globals__.items()
    }
    entered = FunctionType(
        function.__code__,
        names,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    entered.__kwdefaults__ = function.__kwdefaults__
    return entered

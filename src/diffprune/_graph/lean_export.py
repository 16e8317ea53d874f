"""Let `torch.export` leave out what nobody reads from a trace.

An export notes more about every call than its arguments and shapes: the stack as text,
and a second description of each tensor. Both take a good part of its time. So does
looking for garbage among the many objects that it makes, few of which are garbage.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from torch.fx import config
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental import proxy_tensor

# Where torch looks, and what it is told; an older torch may look elsewhere.
_TOLD: Final[tuple[tuple[Any, str, Any], ...]] = (
    (config, "do_not_emit_stack_traces", True),
    (proxy_tensor, "_extract_tensor_metadata", lambda *_, **__: None),
)


@contextmanager
def lean_export() -> Generator[None]:
    """Export only what a trace is read for, while this is open.

    What it changes belongs to the whole process: open it in one thread at a time.

    Examples:
        >>> with lean_export():
        ...     gc.isenabled()
        False
        >>> gc.isenabled()
        True
    """
    told = [entry for entry in _TOLD if hasattr(*entry[:2])]
    before = [getattr(place, name) for place, name, _ in told]
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        for place, name, value in told:
            setattr(place, name, value)
        # The code of a graph is made when it is run, and none is.
        with _use_lazy_graph_module(should_use=True):
            yield
    finally:
        for (place, name, _), value in zip(told, before, strict=True):
            setattr(place, name, value)
        if was_collecting:
            gc.enable()

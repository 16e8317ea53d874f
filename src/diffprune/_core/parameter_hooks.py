"""Hooks that users put on a parameter, for the one that takes its place."""

from torch import nn


def hand_on_hooks_(old: nn.Parameter, new: nn.Parameter) -> None:
    """Let hooks of one parameter see the gradients of another, too.

    Both share them: what `register_hook` returned still removes its hook.

    Examples:
        >>> import torch
        >>> old, new = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))
        >>> handle = old.register_hook(lambda gradient: print(len(gradient)))
        >>> hand_on_hooks_(old, new)
        >>> new.sum().backward()
        1
        >>> handle.remove()
        >>> new.sum().backward()
    """
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        hooks = getattr(old, name)
        if hooks:
            setattr(new, name, hooks)

"""Lets torchvision import beside a CPU build of torch; touches nothing else.

Its compiled operators do not load there, and the import then stops at a missing `nms`.
Declaring the two names is enough: no model of the table calls them.
"""

import functools

import torch

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@functools.cache
def define_torchvision_operators_() -> torch.library.Library:
    """Declare what torchvision expects; the result must stay referenced."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(name + SCHEMA)
    return library

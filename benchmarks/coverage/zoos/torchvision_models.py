"""Every classification model of torchvision, with random weights."""

import functools
from collections.abc import Iterator

from torchvision import models

from benchmarks.coverage.case import Case
from benchmarks.coverage.zoos.images import image

SMALL = 64
# Models that fix their resolution, or whose strides leave nothing of a smaller image.
SIZES = {"inception_v3": 299, "maxvit_t": 224, "vit": 224}


def cases() -> Iterator[Case]:
    """One case per name that torchvision lists."""
    for name in models.list_models(module=models):
        options = (
            {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        )
        build = functools.partial(models.get_model, name, weights=None, **options)
        yield Case("torchvision", name, build, image(_size(name)))


def _size(name: str) -> int:
    return SIZES.get(name, SIZES.get(name.split("_", maxsplit=1)[0], SMALL))

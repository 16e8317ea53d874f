"""A smaller model in one call, without training."""

from diffprune._shrink.shrink import (
    Shrinkage as Shrinkage,
    ShrinkReport as ShrinkReport,
    shrink as shrink,
    shrinkage as shrinkage,
)

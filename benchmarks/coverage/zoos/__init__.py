"""All models of the table, zoo by zoo."""

from collections.abc import Iterator

from benchmarks.coverage.case import Case


def all_cases() -> Iterator[Case]:
    """Every case of every zoo.

    The zoos are imported here because torchvision must be repaired first, and because
    listing, selecting and printing records need none of them.
    """
    from benchmarks.coverage.zoos.repair import (  # noqa: PLC0415
        define_torchvision_operators_,
    )

    define_torchvision_operators_()
    from benchmarks.coverage.zoos import (  # noqa: PLC0415
        cifar,
        diffusion,
        language,
        language_families,
        timm_models,
        torchvision_models,
    )

    yield from language.cases()
    yield from language_families.cases()
    yield from diffusion.cases()
    yield from cifar.cases()
    yield from timm_models.cases()
    yield from torchvision_models.cases()

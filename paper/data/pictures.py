"""Pictures in files: PNG, and Parquet full of them; knows no data set."""

import io
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from diffprune.errors import ArgumentError, MissingPackageError

Bytes = NDArray[np.uint8]
_INSTALL: Final = "is not installed.\nInstall it with `pip install 'diffprune[data]'`."


def read_png(file: Path | IO[bytes], mode: str = "RGB") -> Bytes:
    """Read a picture as an array of (height, width) or (height, width, channels).

    Raises:
        MissingPackageError: If Pillow is not installed.
    """
    try:
        from PIL import Image  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingPackageError(
            f"Pillow, which reads PNG files, {_INSTALL}"
        ) from error
    with Image.open(file) as image:
        return np.asarray(image.convert(mode), np.uint8)


def read_parquet(path: Path, column: str, mode: str = "RGB") -> tuple[Bytes, Bytes]:
    """Read pictures, and the numbers in the column `label`, as the hub keeps them.

    Args:
        path: The file.
        column: Of the pictures: records whose `bytes` are PNG files.
        mode: `RGB`, or `L` for one channel.

    Raises:
        MissingPackageError: If pyarrow or Pillow is not installed.
        ArgumentError: If a column is missing.
    """
    try:
        from pyarrow import parquet  # noqa: PLC0415 - optional
    except ImportError as error:
        message = f"pyarrow, which reads Parquet files, {_INSTALL}"
        raise MissingPackageError(message) from error
    table = parquet.read_table(path)
    if missing := {column, "label"} - set(table.column_names):
        raise ArgumentError(f"there is no column `{min(missing)}` in it")
    pictures = [
        read_png(io.BytesIO(p["bytes"]), mode) for p in table[column].to_pylist()
    ]
    return np.stack(pictures), np.array(table["label"].to_pylist(), np.uint8)

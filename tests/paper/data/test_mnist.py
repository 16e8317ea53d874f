import gzip
import hashlib
import io
import struct
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from diffprune.lab.image_batches import Batches
from paper.data import mnist as mnist_
from paper.data.fetch import MissingDataError, find_files
from paper.data.mnist import FILES, load_mnist, read_idx


@pytest.fixture(scope="module")
def mnist():
    """The real data, where it can be had."""
    try:
        return load_mnist()
    except MissingDataError as error:
        pytest.skip(f"NOT TESTED ON REAL DATA: {error}")


@pytest.mark.parametrize("shape", [(3,), (2, 5), (2, 3, 4)])
def test_idx_files_are_read_as_they_are_specified(tmp_path, shape):
    expected = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
    (tmp_path / "file").write_bytes(header + expected.tobytes())
    assert read_idx(tmp_path / "file").equal(torch.as_tensor(expected))


IMAGES = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
LABELS = np.arange(5, dtype=np.uint8)
PARTS = {"train": slice(3), "t10k": slice(3, 5)}


@pytest.fixture
def contents(tmp_path, monkeypatch):
    """Five digits as if they were MNIST, by file name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DIFFPRUNE_DATA", raising=False)
    found = {}
    for part, chosen in PARTS.items():
        for kind, array in (("images-idx3", IMAGES), ("labels-idx1", LABELS)):
            some = array[chosen]
            header = struct.pack(f">BBBB{some.ndim}I", 0, 0, 8, some.ndim, *some.shape)
            found[f"{part}-{kind}-ubyte"] = header + some.tobytes()
    return found


@pytest.fixture
def tiny(contents):
    sums = {
        name: hashlib.md5(content, usedforsecurity=False).hexdigest()
        for name, content in contents.items()
    }
    return replace(FILES, checksums=sums, sources={})


def test_files_are_understood_as_they_are_published(contents, tiny, tmp_path):
    for name, content in contents.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    find_files(tiny, tmp_path)


def test_files_are_found_in_a_folder_further_down(contents, tiny, tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in contents.items():
        (raw / name).write_bytes(content)
    find_files(tiny, tmp_path)


def test_the_files_of_the_hub_are_understood(tiny, tmp_path, monkeypatch):
    pa, image = pytest.importorskip("pyarrow"), pytest.importorskip("PIL.Image")
    pytest.importorskip("pyarrow.parquet")
    hub = tmp_path / "hub" / "mnist"
    hub.mkdir(parents=True)
    for part, chosen in zip(("train", "test"), PARTS.values(), strict=True):
        pictures = []
        for pixels in IMAGES[chosen]:
            image.fromarray(pixels).save(buffer := io.BytesIO(), "PNG")
            pictures.append({"bytes": buffer.getvalue(), "path": None})
        table = pa.table({"image": pictures, "label": LABELS[chosen].astype(int)})
        pa.parquet.write_table(table, hub / f"{part}-00000-of-00001.parquet")
    home = hub.parent.as_uri()
    monkeypatch.setattr(mnist_, "hub_url", lambda _, path: f"{home}/{path}")
    folder = find_files(replace(tiny, sources={"hub": mnist_._from_hub}))
    assert sorted(p.name for p in folder.iterdir()) == sorted(tiny.checksums)


def test_mnist_is_whole(mnist):
    assert mnist.train.images.shape == (60_000, 1, 28, 28)
    assert mnist.test.images.shape == (10_000, 1, 28, 28)
    assert mnist.validation is None
    assert mnist.train.images.mean().item() == pytest.approx(0.1307, abs=1e-4)
    assert mnist.test.labels.bincount().tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip


def test_validation_images_are_taken_from_the_training_images(mnist):
    split = load_mnist(validation=True)
    assert (len(split.train), len(split.validation)) == (55_000, 5_000)
    assert split.test.images.equal(mnist.test.images)
    both = torch.cat([split.train.labels, split.validation.labels])
    assert both.bincount().equal(mnist.train.labels.bincount())


def test_an_epoch_of_data_takes_a_second_at_most(mnist):
    """A LeNet-5 takes some 50 seconds for an epoch on one core: this is below 2 %."""
    start = time.process_time()
    for _ in Batches(mnist.train, 100, shuffle=True):
        pass
    assert time.process_time() - start < 1

import struct
import time

import numpy as np
import pytest
import torch

from diffprune.lab.image_batches import Batches
from paper.data.download import MissingDataError
from paper.data.mnist import load_mnist, read_idx


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
    assert (read_idx(tmp_path / "file") == expected).all()


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\0\0\x08\x03", b"x" * 99])
def test_a_damaged_idx_file_is_named(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="`file` is damaged"):
        read_idx(tmp_path / "file")


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

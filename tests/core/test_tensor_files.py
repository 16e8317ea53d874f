"""Files of tensors are looked at where they are, and what stays is copied."""

import pytest
import torch

from diffprune._core.tensor_files import copied, map_tensors, packed, read_tensors
from diffprune.errors import ArgumentError

TENSORS = {
    "matrix": torch.rand(3, 5),
    "nothing": torch.empty(0, 2),
    "one": torch.ones((), dtype=torch.bool),
    "whole": torch.arange(7, dtype=torch.int16),
    "large": torch.rand(120, 1000),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "some.safetensors"
    path.write_bytes(packed(TENSORS, note="text"))
    return path


@pytest.mark.parametrize("read", [map_tensors, read_tensors])
def test_what_was_written_is_read(path, read):
    tensors, header = read(path)
    assert header["note"] == "text"
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == TENSORS[name].dtype
        assert torch.equal(tensor, TENSORS[name])


def test_what_is_read_does_not_follow_the_file(path):
    tensors, _ = read_tensors(path)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_writing_into_what_is_mapped_leaves_the_file_as_it_is(path):
    before = path.read_bytes()
    map_tensors(path)[0]["matrix"].zero_()
    assert path.read_bytes() == before


def test_a_copy_is_on_the_cpu_whatever_the_default_device_is():
    vast = torch.arange(9_000_000, dtype=torch.float32)
    with torch.device("meta"):
        assert copied(TENSORS["matrix"]).device.type == "cpu"
        assert torch.equal(copied(vast), vast)


def test_every_flipped_byte_is_noticed(path):
    data = path.read_bytes()
    for place in range(0, len(data), 997):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(ArgumentError, match="damaged"):
            map_tensors(path)

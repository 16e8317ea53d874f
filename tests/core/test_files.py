"""A file is whole or absent, whatever the disk does."""

import logging
import os
import stat
import warnings

import pytest
import torch

from diffprune._core import files, tensor_files
from diffprune._graph import quiet
from diffprune.errors import ArgumentError, StorageError

CALLS = ["open", "fsync"]


def refuse(*_args, **_options):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", CALLS)
def test_a_disk_that_refuses_leaves_the_earlier_file(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    files.write_text(path, "earlier")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageError, match=r"cannot write .*No space left.*\n.*room"):
        files.write_text(path, "later")
    monkeypatch.undo()
    assert [p.read_text() for p in tmp_path.iterdir()] == ["earlier"]


def test_the_error_is_an_os_error_with_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space") as raised:
        files.write_text(tmp_path / "file", "later")
    assert raised.value.errno == 28


def test_several_files_are_replaced_together(tmp_path, monkeypatch):
    paths = [tmp_path / "a", tmp_path / "b"]
    files.write_files(dict.fromkeys(paths, b"earlier"))
    count = iter(range(9))
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda f: refuse() if next(count) else sync(f))
    with pytest.raises(StorageError):
        files.write_files(dict.fromkeys(paths, b"later"))
    assert [path.read_bytes() for path in paths] == [b"earlier"] * 2
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_rights_are_as_the_umask_says(tmp_path, umask):
    before = os.umask(umask)
    try:
        files.write_bytes(tmp_path / "file", tensor_files.packed({"a": torch.ones(1)}))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda _: "known")
    (tmp_path / "secret").write_text("theirs")
    (tmp_path / ".file.known.partial").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match="File exists"):
        files.write_text(tmp_path / "file", "ours")
    assert (tmp_path / "secret").read_text() == "theirs"


def test_every_byte_is_covered(tmp_path):
    path = tmp_path / "file"
    tensors = {"a": torch.rand(3, 5), "b": torch.arange(3), "c": torch.rand(2).half()}
    path.write_bytes(whole := tensor_files.packed(tensors, "plan", note="text"))
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            found, header = tensor_files.read_tensors(path, "plan")
        except ArgumentError:
            continue
        assert header["note"] == "text"
        assert all(torch.equal(found[name], t) for name, t in tensors.items())


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(StorageError, match="taken/deeper`: Not a directory"):
        files.make_folder(tmp_path / "taken" / "deeper")


def test_files_get_their_names_once_all_are_complete(tmp_path):
    target = tmp_path / "new" / "model.onnx"
    with files.written_whole(target) as partial:
        partial.write_bytes(b"graph")
        partial.with_name("model.onnx.data").write_bytes(b"weights")
        assert not target.exists()
    names = {file.name: file.read_bytes() for file in target.parent.iterdir()}
    assert names == {"model.onnx": b"graph", "model.onnx.data": b"weights"}


def write_half(target):
    with files.written_whole(target) as partial:
        partial.write_bytes(b"half")
        raise OSError("full")


def test_after_a_failure_everything_is_as_before(tmp_path):
    target = tmp_path / "model.onnx"
    target.write_bytes(b"older")
    with pytest.raises(OSError, match="full"):
        write_half(target)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"older"]


def test_silence_ends(heard):
    with quiet():
        warnings.warn("not heard", stacklevel=1)
        logging.getLogger("torch").error("not heard")
    logging.getLogger("torch").error("heard")
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", stacklevel=1)
    assert [record.getMessage() for record in heard] == ["heard"]

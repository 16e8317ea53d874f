import hashlib
import io
import json
import os
import pickle
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from paper.data import cifar10_formats as formats
from paper.data.cifar10 import FILES
from paper.data.fetch import MissingDataError, find_files

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(12, dtype=np.uint8) % 10
PARTS = {"train": slice(10), "test": slice(10, 12)}
BATCHES = {"data_batch_1": slice(4), "data_batch_2": slice(4, 10)}
BATCHES["test_batch"] = slice(10, 12)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Ten training images and two for the test, as if they were CIFAR-10."""
    arrays = {f"{p}-images.bin": IMAGES[s] for p, s in PARTS.items()}
    arrays |= {f"{p}-labels.bin": LABELS[s] for p, s in PARTS.items()}
    sums = {n: hashlib.sha256(a.tobytes()).hexdigest() for n, a in arrays.items()}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DIFFPRUNE_DATA", raising=False)
    return replace(FILES, checksums=sums, sources={})


def planes(part):
    return IMAGES[part].transpose(0, 3, 1, 2).reshape(-1, 3072)


def binary(part):
    return np.concatenate([LABELS[part, None], planes(part)], axis=1).tobytes()


def pickled(part):
    batch = {b"data": planes(part), b"labels": LABELS[part].tolist()}
    content = pickle.dumps(batch, protocol=2)
    return content.replace(b"numpy._core", b"numpy.core")  # as it was called then


VERSIONS = {
    "binary": ("cifar-10-batches-bin", ".bin", binary),
    "python": ("cifar-10-batches-py", "", pickled),
}


@pytest.fixture(params=VERSIONS)
def batches(request):
    """The batches of one version of the archive, by path."""
    folder, suffix, encode = VERSIONS[request.param]
    contents = {f"{folder}/{name}{suffix}": encode(s) for name, s in BATCHES.items()}
    return request.param, contents


def pack(archive, contents):
    with tarfile.open(archive, "w:gz") as packed:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))


def unpack(folder, contents):
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def test_an_archive_is_understood_packed(tiny, tmp_path, batches):
    version, contents = batches
    pack(tmp_path / f"cifar-10-{version}.tar.gz", contents)
    find_files(tiny, tmp_path)


def test_an_archive_is_understood_unpacked(tiny, tmp_path, batches):
    unpack(tmp_path, batches[1])
    find_files(tiny, tmp_path)


def test_the_home_is_asked_for_the_archive(tiny, tmp_path, monkeypatch):
    contents = {f"{name}.bin": binary(s) for name, s in BATCHES.items()}
    pack(tmp_path / "home.tar.gz", contents)
    monkeypatch.setattr(formats, "HOME", (tmp_path / "home.tar.gz").as_uri())
    folder = find_files(replace(tiny, sources={"home": formats.from_home}))
    assert sorted(p.name for p in folder.iterdir()) == sorted(tiny.checksums)


@pytest.mark.parametrize("length", [0, 100, 5_000])
def test_a_truncated_archive_is_refused(tiny, tmp_path, batches, length):
    version, contents = batches
    archive = tmp_path / f"cifar-10-{version}.tar.gz"
    pack(archive, contents)
    archive.write_bytes(archive.read_bytes()[:length])
    with pytest.raises(MissingDataError, match=rf"cifar-10-{version}\.tar\.gz`: "):
        find_files(tiny, tmp_path)


@pytest.mark.parametrize("length", [0, 100, 5_000, -1])
def test_a_truncated_batch_is_refused(tiny, tmp_path, batches, length):
    *whole, last = batches[1].items()
    unpack(tmp_path, {**dict(whole), last[0]: last[1][:length]})
    with pytest.raises(MissingDataError, match="and name it with `--data-dir`"):
        find_files(tiny, tmp_path)


def test_a_missing_batch_is_missed(tiny, tmp_path, batches):
    name, content = [*batches[1].items()][-1]
    unpack(tmp_path, {name: content})
    with pytest.raises(MissingDataError, match="no `data_batch_` beside"):
        find_files(tiny, tmp_path)


class Dangerous:
    def __reduce__(self):
        return (os.mkdir, ("harm",))


def test_a_pickle_that_runs_a_program_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unpack(tmp_path, {f"py/{name}": pickle.dumps(Dangerous()) for name in BATCHES})
    with pytest.raises(MissingDataError, match="is not part of an array of numbers"):
        find_files(tiny, tmp_path)
    assert not (tmp_path / "harm").exists()


def parquet(folder, part, column="img"):
    """A file as the hub has it."""
    pa, image = pytest.importorskip("pyarrow"), pytest.importorskip("PIL.Image")
    pytest.importorskip("pyarrow.parquet")
    pictures = []
    for pixels in IMAGES[PARTS[part]]:
        buffer = io.BytesIO()
        image.fromarray(pixels).save(buffer, "PNG")
        pictures.append({"bytes": buffer.getvalue(), "path": None})
    table = pa.table({column: pictures, "label": LABELS[PARTS[part]].astype(int)})
    path = folder / f"{part}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(table, path)
    return path


def test_the_files_of_the_hub_are_understood(tiny, tmp_path, monkeypatch):
    for part in PARTS:
        parquet(tmp_path / "hub" / "plain_text", part)
    home = (tmp_path / "hub").as_uri()
    monkeypatch.setattr(formats, "hub_url", lambda _, path: f"{home}/{path}")
    folder = find_files(replace(tiny, sources={"hub": formats.from_hub}))
    assert sorted(p.name for p in folder.iterdir()) == sorted(tiny.checksums)


def test_files_of_the_hub_can_be_named(tiny, tmp_path):
    for part in PARTS:
        parquet(tmp_path / "plain_text", part)
    find_files(tiny, tmp_path)


@pytest.mark.parametrize("damage", ["column", "length"])
def test_other_files_of_the_hub_are_refused(tiny, tmp_path, damage):
    for part in PARTS:
        path = parquet(tmp_path, part, "img" if damage == "length" else "picture")
        if damage == "length":
            path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(MissingDataError, match=r"parquet`: .*\n.*Put `cifar-10-binary"):
        find_files(tiny, tmp_path)


def test_an_unreachable_hub_says_what_to_put_where(tiny, tmp_path, monkeypatch):
    nowhere = (tmp_path / "nowhere").as_uri()
    monkeypatch.setattr(formats, "hub_url", lambda _, path: f"{nowhere}/{path}")
    with pytest.raises(
        MissingDataError, match=r"hub: .*\n.*`cifar-10-python\.tar\.gz`"
    ):
        find_files(replace(tiny, sources={"the hub": formats.from_hub}))


@pytest.fixture
def package(monkeypatch):
    """What npm has: rows of 1,024 pixels, five files for training and one more."""
    image = pytest.importorskip("PIL.Image")

    def unpack(folder):
        rows = IMAGES.reshape(12, 1024, 3)
        for number in range(5):
            part = rows[2 * number : 2 * number + 2]
            image.fromarray(part).save(folder / f"data_batch_{number + 1}.png")
        image.fromarray(rows[10:]).save(folder / "test_batch.png")
        (folder / "train_lables.json").write_text(json.dumps(LABELS[:10].tolist()))
        (folder / "test_lables.json").write_text(json.dumps(LABELS[10:].tolist()))

    monkeypatch.setattr(formats, "npm_package", lambda *_: unpack)
    return {"npm": formats.from_npm}


def test_the_pictures_from_npm_are_understood(tiny, package):
    folder = find_files(replace(tiny, sources=package))
    assert sorted(p.name for p in folder.iterdir()) == sorted(tiny.checksums)

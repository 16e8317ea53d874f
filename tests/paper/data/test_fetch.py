import gzip
import hashlib
from pathlib import Path

import pytest

from paper.data.fetch import Files, MissingDataError, find_files
from paper.data.sources import gzipped

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


def upper(found: Path, folder: Path) -> None:
    """A conversion: the content in capitals is what people have."""
    (folder / "a.txt").write_bytes(found.read_bytes().lower())


def files(**sources):
    checksums = {"a.txt": hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()}
    return Files("words", "md5", checksums, sources, {"a.upper": upper})


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
    assert "Put `a.upper`, or `a.txt` into a folder" in message
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


@pytest.mark.parametrize("length", [0, 5, 20, -1])
def test_a_download_that_was_cut_short_is_no_reason_to_stop(tmp_path, cache, length):
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(CONTENT)[:length])
    home = gzipped({"a.txt": packed.as_uri()})
    find_files(files(home=home, npm=writing(CONTENT)))
    assert (cache / "a.txt").read_bytes() == CONTENT


@pytest.mark.parametrize("inside", ["", "words", "words/deeper"])
def test_what_people_have_is_converted_once_and_cached(tmp_path, cache, inside):
    named = tmp_path / "mine"
    (named / inside).mkdir(parents=True)
    (named / inside / "a.upper").write_bytes(CONTENT.upper())
    assert find_files(files(npm=failing), named) == cache
    assert (cache / "a.txt").read_bytes() == CONTENT
    (named / inside / "a.upper").write_bytes(b"never read again")
    assert find_files(files(npm=failing), named) == cache


@pytest.mark.parametrize("content", [WRONG.upper(), b""])
def test_damaged_files_of_another_format_are_refused(tmp_path, cache, content):
    (tmp_path / "a.upper").write_bytes(content)
    with pytest.raises(MissingDataError, match=r"a\.upper`: `a\.txt` has md5"):
        find_files(files(npm=writing(CONTENT)), tmp_path)
    assert not cache.exists()


def test_a_good_file_is_used_where_there_is_a_damaged_one_too(tmp_path, cache):
    (tmp_path / "words").mkdir()
    (tmp_path / "a.upper").write_bytes(WRONG)
    (tmp_path / "words" / "a.upper").write_bytes(CONTENT.upper())
    assert find_files(files(), tmp_path) == cache

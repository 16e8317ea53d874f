"""Sweeps that share their work through a database, and what a killed worker leaves."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diffprune.errors import MissingPackageError, StorageError
from diffprune.lab import Recipe, Search, read_run
from diffprune.lab.sweeps import sweep
from diffprune.lab.sweeps.study import Study

pytest.importorskip("optuna")
RECIPE = Recipe(name="toy", epochs=2, batch_size=8, lr=1e-2)
SEARCH = Search(ranges={"macs": (0.2, 0.8)}, trials=3)


def test_a_database_in_a_file_will_do(task, tmp_path):
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    out = tmp_path / "sweep"
    front = sweep(task, SEARCH, out=out, recipe=RECIPE, storage=url)
    assert len(front.runs) == 3
    assert not (out / "study.journal").exists()
    assert Study(out, url).front() == set(front.best)
    assert Study(tmp_path / "other", url).front() == set()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:////no/such/folder/studies.db", "cannot be used: .*open database"),
        ("nonsense", r"`nonsense` cannot be used: (.|\n)*--storage postgresql"),
        ("elephant://host/name", "cannot be used: .*elephant"),
        ("redis://host", "cannot be used"),
    ],
)
def test_a_storage_that_cannot_be_used_is_named(tmp_path, url, message):
    with pytest.raises(StorageError, match=message):
        Study(tmp_path, url)


def test_passwords_are_not_repeated(tmp_path):
    pytest.importorskip("psycopg")
    url = f"postgresql+psycopg://me:secret@127.0.0.1:{_free_port()}/name"
    with pytest.raises(StorageError, match=r"me:\*\*\*@127.0.0.1.*refused") as caught:
        Study(tmp_path, url)
    assert "secret" not in str(caught.value)


def test_a_missing_driver_says_how_to_install_one(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'diffprune\[postg"):
        Study(tmp_path, "postgresql+psycopg://me@127.0.0.1/name")


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _programs():
    """The folder of PostgreSQL's programs, which Debian does not put on the path."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return places[-1].parent if places else None


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A real PostgreSQL server, of an unprivileged user, on loopback."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = _programs()
    if programs is None:
        pytest.skip("initdb is not installed: apt-get install postgresql")
    folder = tmp_path_factory.mktemp("postgresql")
    user = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        folder = Path("/tmp") / f"diffprune-{folder.parent.name}-{os.getpid()}"  # noqa: S108 - others must be able to reach it
        folder.mkdir(mode=0o700)
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)

    def call(*words):
        quiet = {"stdout": subprocess.DEVNULL, "cwd": folder, **user}
        subprocess.run(words, check=True, **quiet)  # noqa: S603 - our own

    data, port = folder / "data", _free_port()
    options = ["--auth=trust", "--username=sweeper", "--no-sync", "--encoding=UTF8"]
    call(programs / "initdb", "-D", data, *options)
    settings = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
    control = [programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
    call(*control, "-o", settings, "start")
    try:
        yield f"postgresql+psycopg://sweeper@127.0.0.1:{port}/postgres"
    finally:
        call(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.mark.slow
def test_workers_share_a_study_in_postgresql(server, task, tmp_path):
    out = tmp_path / "shared"
    front = sweep(task, SEARCH, out=out, recipe=RECIPE, storage=server, workers=2)
    assert {run.name for run in front.runs} == {f"trial-00{n}" for n in range(3)}
    assert len({run.recipe.budget["macs"] for run in front.runs}) == 3
    assert Study(out, server).front() == set(front.best)


WORK = """
import sys
from diffprune.lab import Recipe, Search, sweep
from diffprune.lab.sweeps import trials

task, out, storage, slowly = sys.argv[1:]
train = trials.train


def slow(*args, on_epoch, **options):
    def wait(epoch):
        on_epoch(epoch)
        print("epoch", flush=True)
        sys.stdin.readline()

    return train(*args, on_epoch=wait if slowly == "slowly" else on_epoch, **options)


trials.train = slow
sweep(
    task,
    Search(ranges={"macs": (0.2, 0.8)}, trials=3),
    out=out,
    recipe=Recipe(name="toy", epochs=2, batch_size=8, lr=1e-2),
    storage=storage or None,
)
"""


def _start(*words):
    return subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", WORK, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["journal", "sqlite", "postgresql"])
def test_a_worker_killed_in_mid_trial_loses_nothing(kind, task, tmp_path, request):
    url = {"journal": "", "sqlite": f"sqlite:///{tmp_path / 'studies.db'}"}.get(kind)
    url = request.getfixturevalue("server") if url is None else url
    out = tmp_path / f"killed-in-{kind}"
    with _start(task, out, url, "slowly") as victim:
        assert victim.stdout.readline() == "epoch\n"
        victim.send_signal(signal.SIGKILL)
    begun = read_run(out / "trial-000")
    assert (len(begun.epochs), begun.outcome) == (1, None)
    time.sleep(0.1)
    with _start(task, out, url, "") as heir:
        assert heir.wait() == 0
    ended = read_run(out / "trial-000")
    assert ended.outcome is not None
    assert ended.recipe == begun.recipe
    assert ended.epochs[0] == begun.epochs[0]  # seconds included: it was not repeated
    assert len(ended.epochs) == 2
    assert (
        len(sweep(task, SEARCH, out=out, recipe=RECIPE, storage=url or None).runs) == 3
    )

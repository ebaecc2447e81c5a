"""Where nobody may write, or we may not: one of shmq's errors that says so, and the queue is what it was."""

import codecs
import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from disks import in_memory

from shmq import formats
from shmq.errors import BadFormat, DiskFull, NotFound, ShmqError, Unsafe
from shmq.formats import Entry, chronicle

QUEUES = {"sej": None, "libkestrel": "q", "kestrel": "q", "qewqew": "q", "chronicle": "q"}


def place(folder, name):
    """What is written to and read from, and the queue in it."""
    return (folder / "q.dat", None) if name == "qewqew" else (folder / "d", QUEUES[name])


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "jnl.lck"}


@contextlib.contextmanager
def on_a_read_only_disk(folder):
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


@contextlib.contextmanager
def as_another_user(folder):
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    codecs.lookup("ascii")  # what Python looks up while another user looks nowhere
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


@contextlib.contextmanager
def a_place(tmp_path, kind):
    if kind == "read-only":
        with in_memory(tmp_path, 1 << 24) as folder:
            yield folder, on_a_read_only_disk
        return
    with tempfile.TemporaryDirectory() as folder:  # where another user can look, too
        yield Path(folder), as_another_user


@pytest.mark.parametrize("kind", ["read-only", "another user"])
@pytest.mark.parametrize("name", list(QUEUES))
def test_a_place_that_we_may_not_write_to_is_said(tmp_path, name, kind):
    """Append, commit, repair in place and open in place: the answer of the world, and nothing has changed."""
    with a_place(tmp_path, kind) as (folder, refused):
        path, queue = place(folder, name)
        formats.write(path, [Entry(b"a"), Entry(b"b")], name, queue)
        before = everything(folder)
        calls = {
            "append": lambda: formats.append(path, [Entry(b"c")], queue, name),
            "repair": lambda: formats.repair(path, queue, name, in_place=True),
        }
        if name not in {"qewqew", "kestrel"}:
            calls["commit"] = lambda: formats.commit(path, "r", 1, queue=queue, format=name)
        if name in {"qewqew", "kestrel"}:
            calls["open"] = formats.open_queue(path, name, queue).__enter__
        if name == "chronicle":
            calls["Appender"] = lambda: chronicle.Appender(path, queue)
            calls["unlock"] = lambda: chronicle.unlock(path, queue)
        with refused(folder):
            for what, call in calls.items():
                with pytest.raises(Unsafe, match=r"cannot .*(Read-only|denied).*untouched") as found:
                    call()
                assert isinstance(found.value, OSError), what
                assert isinstance(found.value, ShmqError)
        assert everything(folder) == before


def test_unlock_says_what_it_was_that_it_could_not_do(tmp_path):
    with pytest.raises(NotFound, match=r"cannot unlock .*nothing: there is no such directory"):
        chronicle.unlock(tmp_path / "nothing")
    (tmp_path / "20231115.cq4").write_bytes(b"")
    with pytest.raises(NotFound, match=r"cannot unlock .*: it has no metadata.cq4t"):
        chronicle.unlock(tmp_path)


@pytest.mark.parametrize("name", list(QUEUES))
def test_a_disk_that_is_full_is_said_and_what_is_in_is_whole(tmp_path, name):
    """By each verb, of each format, with the path; there is no part of a message, and it goes on when there is room."""
    with in_memory(tmp_path, 1 << 20) as folder:
        path, queue = place(folder, name)
        formats.write(path, [Entry(b"a" * 1000)], name, queue)
        many = len(list(formats.read(path, name, queue)))
        with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        more = [Entry(b"b" * 1000)] * 1000
        calls = {
            "append": lambda: formats.append(path, more, queue, name),
            "repair": lambda: formats.repair(path, queue, name, to=folder / "copy"),
            "write": lambda: formats.write(folder / "new", more, name, queue),
        }
        for what, call in calls.items():
            with pytest.raises(DiskFull, match=r"cannot|is full|No space"):
                call()
            assert not (folder / "copy").exists(), what
        found = [entry.payload for entry in formats.read(path, name, queue, strict=True)]
        assert found[:many] == [b"a" * 1000]
        assert set(found[many:]) <= {b"b" * 1000}
        (folder / "filler").unlink()
        assert formats.append(path, more[:2], queue, name) == 2
        assert formats.verify(path, queue, name) == []


@pytest.mark.parametrize("name", ["sej", "chronicle"])
def test_a_directory_in_the_place_of_a_file_is_said(tmp_path, name):
    path, queue = place(tmp_path, name)
    formats.write(path, [Entry(b"a")], name, queue)
    (file,) = path.rglob("*.jnl" if name == "sej" else "metadata.cq4t")
    file.unlink()
    file.mkdir()
    with pytest.raises((BadFormat, NotFound), match="cannot append to"):
        formats.append(path, [Entry(b"b")], queue, name)


@pytest.mark.parametrize("name", ["kestrel", "libkestrel"])
def test_what_we_may_not_read_is_not_called_missing(tmp_path, name):
    """The files are there, and what they are cannot be known."""
    with a_place(tmp_path, "another user") as (folder, refused):
        path, queue = place(folder, name)
        formats.write(path, [Entry(b"a")], name, queue)
        with refused(folder):
            os.seteuid(0) if os.getuid() == 0 else None
            for file in path.iterdir():
                file.chmod(0)
            os.seteuid(65534) if os.getuid() == 0 else None
            with pytest.raises(NotFound, match="may not be read by us"):
                formats.read(path, name)
            with pytest.raises(BadFormat, match="may not be read by us"):
                formats.read(path)


def test_an_interrupt_while_a_writer_clears_up_leaves_nothing(tmp_path, monkeypatch):
    remove, calls = shutil.rmtree, []

    def interrupted(path, **options):
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        formats.write(tmp_path / "d", [Entry(b"a")], "libkestrel", "q")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]

"""The verbs that all formats share: detection, errors that tell, lazy import, entries."""

import errno
import os
import pickle
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from format_fixtures import FIXTURES, PROJECT, place
from hypothesis import given, settings
from hypothesis import strategies as st

from shmq import formats
from shmq.errors import BadFormat, NotFound, ShmqError
from shmq.formats import Entry


def detectable():
    found = [
        pytest.param(folder, system, id=f"{system}-{folder.name}")
        for system in ("kestrel", "libkestrel", "sej", "qewqew", "chronicle")
        for folder in sorted((FIXTURES / system / "given").glob("*"))
        if folder.is_dir()
        and any(path.name != ".keep" for path in folder.rglob("*") if path.is_file())
        # Of Chronicle, only the version that is told by its names; deeper folders hold several queues each.
        and (system != "chronicle" or any(path.suffix.startswith(".cq4") for path in folder.iterdir()))
    ]
    reason = f"no fixtures in {FIXTURES} (set SHMQ_FIXTURES)"
    return found or [pytest.param(None, None, id="no-fixtures", marks=pytest.mark.skip(reason=reason))]


@pytest.mark.parametrize(("folder", "system"), detectable())
def test_every_fixture_is_detected(folder, system):
    assert system == formats.detect(folder)
    for header in folder.glob("queue.dat"):
        assert formats.detect(header) == "qewqew"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"README": b"This is no queue.\n"}, None),
        ({"notes.txt": b"\x02\x12\0\0\0" + bytes(18)}, None),
        ({"a.png": b"\x89PNG\r\n\x1a\n" + bytes(100)}, None),
        ({"queue.shmq": b"anything"}, "shmq"),
        ({"20240101F.cq4": b""}, "chronicle"),
        ({"metadata.cq4t": b""}, "chronicle"),
        ({"orders/20240101F.cq4": b"", "README": b"This is no queue.\n"}, "chronicle"),
        ({"cars": b"\x02\x12\0\0\0" + bytes(18), "README": b"This is no queue.\n"}, "kestrel"),
        ({"jobs.1": bytes.fromhex("27642603")}, "libkestrel"),
        ({"jobs.read.x": bytes.fromhex("263c2603")}, "libkestrel"),
        ({"jnl/0000000000000000.jnl": b""}, "sej"),
        ({"x.1.000/jnl/0000000000000000.jnl": b""}, "sej"),
        ({"q": b"\0\1", "q.1": bytes(64)}, "qewqew"),
    ],
)
def test_directories_are_told_apart(tmp_path, files, expected):
    assert expected == formats.detect(place(tmp_path, files))


def test_what_is_not_there_is_none(tmp_path):
    assert formats.detect(tmp_path / "nothing") is None
    with pytest.raises(NotFound, match="nothing is there"):
        formats.read(tmp_path / "nothing")
    with pytest.raises(BadFormat, match="none of the formats"):
        formats.read(tmp_path)


def test_shmqs_own_queues_are_no_foreign_format_and_the_error_says_so(tmp_path):
    place(tmp_path, {"queue.shmq": b""})
    for verb in (formats.read, formats.state, formats.verify, formats.repair):
        with pytest.raises(BadFormat, match="shmq: its reader and writer are not part"):
            verb(tmp_path)
    with pytest.raises(BadFormat, match="shmq"):
        formats.write(tmp_path / "x", [], "shmq")
    with pytest.raises(BadFormat, match="the formats are"):
        formats.read(tmp_path, "tape")


@pytest.mark.parametrize("name", formats.HERE)
def test_pipes_and_links_to_nothing_are_not_read(tmp_path, name):
    """A named pipe in the place of a journal must not block its reader for ever."""
    for file in ("cars", "jobs.1", "jobs.read.", "q"):
        os.mkfifo(tmp_path / file)
    (tmp_path / "gone.1").symlink_to("nowhere")
    assert formats.detect(tmp_path) is None
    with suppress(ShmqError):
        assert list(formats.read(tmp_path, name, "cars" if name != "sej" else None)) == []


def test_a_folder_of_several_queues_names_them(tmp_path):
    place(tmp_path, {"jobs.1": bytes.fromhex("27642603"), "more.1": bytes.fromhex("27642603")})
    with pytest.raises(BadFormat, match="jobs, more"):
        formats.read(tmp_path)


@pytest.mark.parametrize(
    ("files", "name", "queues"),
    [
        (
            {"jobs.1": bytes.fromhex("27642603"), "more.read.": bytes.fromhex("263c2603")},
            "libkestrel",
            ["jobs", "more"],
        ),
        (
            {"cars": bytes((1,)), "cars+x.5": bytes((1,)), "cars.5": b"", "README": b"Hi\n"},
            "kestrel",
            ["cars", "cars+x"],
        ),
        ({"a.1.000/jnl/0.jnl": b"", "a.1.001/jnl/0.jnl": b""}, "sej", ["a.1.000", "a.1.001"]),
        ({"jnl/0.jnl": b""}, "sej", [""]),
        ({"q": b"\0\1", "q.1": bytes(20), "r": b"\0\0"}, "qewqew", ["q", "r"]),
        ({"20240101F.cq4": b""}, "chronicle", [""]),
        ({"b/20240101F.cq4": b"", "a/metadata.cq4t": b"", "c/notes.txt": b""}, "chronicle", ["a", "b"]),
    ],
)
def test_the_queues_of_a_folder_are_named(tmp_path, files, name, queues):
    assert formats.queues(place(tmp_path, files)) == formats.queues(tmp_path, name) == queues


def test_entries_are_frozen_compare_and_pickle():
    entry = Entry(b"x", 1, extra={"segment": "s"})
    with pytest.raises(AttributeError):
        entry.payload = b"y"
    assert entry == pickle.loads(pickle.dumps(entry))
    assert entry == formats.model.make_entry((b"x", 1, None, None, None, None, None, {"segment": "s"}))


def test_modules_are_imported_when_they_are_first_needed():
    code = "import sys, shmq.formats; print([m for m in sys.modules if m.startswith('shmq.formats.')])"
    found = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert not {f"shmq.formats.{name}" for name in formats.HERE} & set(eval(found.stdout))


@pytest.mark.parametrize("source", ["libkestrel", "sej", "qewqew", "kestrel"])
@pytest.mark.parametrize("target", ["libkestrel", "sej", "qewqew", "kestrel"])
def test_what_one_format_holds_goes_into_every_other(tmp_path, source, target):
    """Payloads and their order survive every way; the rest as far as both ends can hold it."""
    full = [Entry(b"%d" % n * n, None, (1_300_000_000_000 + n) * 1_000_000) for n in range(50)]
    first = {"libkestrel": {"first": 1}, "sej": {"first": 0}, "kestrel": {}, "qewqew": {"lossy": True}}
    queue = {"libkestrel": "jobs", "kestrel": "jobs"}
    start, end = tmp_path / "start", tmp_path / "end"
    formats.write(start, full, source, queue.get(source), **first[source])
    formats.write(end, formats.read(start), target, queue.get(target), **first[target])
    back = list(formats.read(end))
    assert [entry.payload for entry in full] == [entry.payload for entry in back]
    if "qewqew" not in (source, target):
        assert [entry.time_ns for entry in full] == [entry.time_ns for entry in back]


@pytest.mark.parametrize("name", formats.HERE)
def test_every_file_and_the_directory_are_on_the_disk_before_writing_returns(tmp_path, synced, name):
    synced.clear()
    queue = {"libkestrel": "jobs", "kestrel": "jobs"}.get(name)
    formats.write(tmp_path / "d" if name != "qewqew" else tmp_path / "q", [Entry(b"x")], name, queue)
    assert {path.name for path in tmp_path.rglob("*")} - {"d"} == {Path(path).name for path in synced} - {
        "d",
        tmp_path.name,
    }
    assert synced[-1] == str(tmp_path)
    assert name == "qewqew" or synced[-2] == str(tmp_path / "d")


@pytest.mark.parametrize("verb", ["write", "repair"])
@pytest.mark.parametrize("name", formats.HERE)
def test_a_disk_that_is_full_is_named_and_nothing_is_left(tmp_path, monkeypatch, name, verb):
    queue = {"libkestrel": "jobs", "kestrel": "jobs"}.get(name)
    source, target = tmp_path / "q", tmp_path / "new"
    formats.write(source, [Entry(b"x")], name, queue)
    before = sorted(path.name for path in tmp_path.iterdir())

    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        attempt = partial(formats.write, target, [Entry(b"x")], name, queue)
        if verb == "repair":
            attempt = partial(formats.repair, source, queue, name, to=target)
        with pytest.raises(OSError, match="No space left on device; nothing was written") as failed:
            attempt()
    # QewQew's files are made in the folder that its header is in.
    assert failed.value.filename == str(tmp_path if name == "qewqew" else target)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


MS = 1_000_000
times = st.integers(-(10**12), 10**13).map(lambda ms: ms * MS)
KEPT = {
    "libkestrel": {"time_ns": times, "expires_ns": st.none() | times, "attempts": st.integers(-(2**31), 2**31 - 1)},
    "kestrel": {"time_ns": times, "expires_ns": st.none() | st.integers(1, 10**13).map(lambda ms: ms * MS)},
    "sej": {
        "time_ns": st.integers(-(2**63), 2**63 - 1),
        "key": st.binary(max_size=127),
        "type": st.integers(0, 255),
    },
    "qewqew": {},
}


@pytest.mark.parametrize("name", sorted(KEPT))
@settings(deadline=None, max_examples=40, database=None)
@given(data=st.data())
def test_whatever_a_format_can_hold_comes_back(name, data):
    """Any payloads, and any values of the fields that the format keeps, in segments of any size."""
    entries = data.draw(st.lists(st.builds(Entry, st.binary(max_size=300), **KEPT[name]), max_size=20))
    small = {
        "libkestrel": {"journal_bytes": data.draw(st.integers(400, 2000))},
        "kestrel": {"layout": "rotated", "rotate_bytes": data.draw(st.integers(1, 500))},
        "sej": {"segment_bytes": data.draw(st.integers(1, 2000))},
        "qewqew": {"chunk_bytes": data.draw(st.integers(312, 2000))},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "q"
        queue = "jobs" if name in ("libkestrel", "kestrel") else None
        formats.write(path, entries, name, queue, **small[name])
        back = list(formats.read(path, name, queue))
        assert formats.verify(path, queue, name) == []
    fields = ["payload", *KEPT[name]]
    assert [[getattr(e, f) for f in fields] for e in entries] == [[getattr(e, f) for f in fields] for e in back]

"""Small files whose checksum is right and whose content is not: Corrupt, with file and reason, from every verb."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import struct
import time
from pathlib import Path

import msgspec
import pytest
from support import change_journal, make_unclean

import shmq
import shmq.reading.arrow
from shmq import _native
from shmq.reading import arrow
from shmq.storage import dedup, directory, ledger, ring

DEEP = b"\x91" * 5000 + b"\xc0"
STRANGE = [
    b"",
    b"\xc1",
    DEEP,
    b"\x81\x80\x00",  # a mapping as a key
    b"\xa2\xff\xfe",  # no UTF-8
    b"\xd7\xff" + b"\xff" * 8,  # a time that there is not
    *map(msgspec.msgpack.encode, [None, 7, 1.5, "x", b"x", [], [[]], {}, {b"p": 3}, {b"p": [1, 2]}, {3: [1, 2, 3]}]),
    *map(msgspec.msgpack.encode, [{b"p": [-1, 0, 0]}, {b"p": [1, (1 << 64) - 1, 1]}, {b"p": [b"", "", None]}]),
    *map(
        msgspec.msgpack.encode, [[1 << 40, 5, 5], [0, b"x", b""], [0, 1 << 40, b""], [-1, b"", b""], [None, b"", b""]]
    ),
    *map(msgspec.msgpack.encode, [[b"", 1, ["00000000.chunk"], [1], [], [], []]]),
    *map(
        msgspec.msgpack.encode,
        [[b"", ["../x"], [1], [1], [1], b"", 0, 0]],
    ),
    *map(msgspec.msgpack.encode, [[b"", ["00000000.chunk"], ["x"], [1], [1], b"", 0, 0], [5, [], [], [], [], 5, 5, 5]]),
]


def record(body):
    return struct.pack("<8sII", b"shmqadpt", len(body), _native.crc32c(body)) + body


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A queue with every small file there is."""
    path = tmp_path_factory.mktemp("source") / "q"
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put(b"first", headers={"a": 1})
        with queue.stage() as staged:
            staged.put(b"adopted")
            queue.adopt(staged, dedup=("p", 1))
        queue.put(b"put", dedup=("p", 2))
        staged = queue.stage()
        staged.put(b"waits")
        staged.hand_over(owner="me")
        queue.consumer("c").close()
        queue.consumer("g", group=True, ack="explicit").close()
    return path


def verbs(path):
    """(verb, call) of everything that reads small files; each on a queue that is opened anew."""

    def using(work, **flags):
        with shmq.open(path, create=False, **flags) as queue:
            return work(queue)

    for flags in ({"read_only": True}, {}):
        for work in (
            lambda queue: [message.headers for message in queue.reader()],
            lambda queue: queue.staged_sets(),
            lambda queue: queue.adopted("p"),
            lambda queue: queue.stats(),
            lambda queue: queue.group_place("g"),
        ):
            yield lambda work=work, flags=flags: using(work, **flags)
    yield lambda: using(lambda queue: queue.put(b"x", dedup=("p", 9)))
    yield lambda: using(lambda queue: queue.consumer("g", group=True, ack="explicit").get(timeout=0).nack())
    yield lambda: using(lambda queue: queue.adopt(queue.staged_sets()[0]) if queue.staged_sets() else None)
    yield lambda: using(lambda queue: queue.sweep_staged(older_than=0))
    yield lambda: using(lambda queue: queue.purge())
    yield lambda: shmq.verify(path)
    yield lambda: shmq.repair(path)


def every_verb_ends(path, file):
    """With an answer or an error of ours; a Corrupt names a file. At least one verb tells of *file*."""
    told = [problem.file for problem in shmq.verify(path).problems]
    for verb in verbs(path):
        try:
            with contextlib.suppress(shmq.Empty):
                verb()
        except shmq.ShmqError as problem:
            told.append(str(problem))
    return any(file in each for each in told)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", ["ledger.shmq", "dedup.shmq", "handed", "manifest", "placed"])
@pytest.mark.parametrize("number", range(len(STRANGE)))
def test_a_record_that_holds_something_else_is_corrupt(source, tmp_path, file, number):
    """Not AttributeError, UnicodeDecodeError, RecursionError, OverflowError, struct.error or one of msgspec's."""
    path = tmp_path / "q"
    shutil.copytree(source, path)
    (folder,) = (path / "staging").iterdir()
    there = path / file if file.endswith(".shmq") else folder / file
    there.write_bytes(record(STRANGE[number]))
    there.chmod(0o600)
    told = every_verb_ends(path, folder.name if there.parent == folder else file)
    assert told or STRANGE[number] in map(msgspec.msgpack.encode, [{}, [1 << 40, 5, 5]])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [
        5,
        [],
        "x",
        {"retention": 5},
        {"retention": {"kind": []}},
        {"durability": "x"},
        {"chunk_bytes": 1e400},
        {"ttl": []},
    ],
)
def test_stored_options_that_are_none_are_corrupt(source, tmp_path, options):
    """Whatever json can hold."""
    path = tmp_path / "q"
    shutil.copytree(source, path)
    content = (path / "queue.shmq").read_bytes()
    queue_id, _ = _native.check_queue(content[:4096], "")
    page = _native.format_queue(queue_id, 0, json.dumps(options).encode())
    (path / "queue.shmq").write_bytes(page + content[4096:])
    for mode in ({}, {"create": False}, {"read_only": True}):
        with pytest.raises((shmq.Corrupt, shmq.BadFormat), match=r"queue\.shmq"):
            shmq.open(path, **mode)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [
        5,
        [],
        {"lease": []},
        {"lease": -1},
        {"lease": "x"},
        {"max_attempts": []},
        {"ordered_by": 7},
        {"dead_letter": 7},
    ],
)
def test_group_options_that_are_none_are_corrupt(source, tmp_path, options):
    """Whatever json can hold; the queue and its other names go on."""
    path = tmp_path / "q"
    shutil.copytree(source, path)
    with shmq.open(path) as queue:
        stored = json.dumps(options).encode()
        header = ring._GROUP.pack(ring._GROUP_MAGIC, queue._session.home.queue_id, len(stored), _native.crc32c(stored))
        (path / "consumers" / "g.group").write_bytes(header + stored)
        with pytest.raises((shmq.Corrupt, shmq.Mismatch), match="g"):
            queue.consumer("g", group=True, ack="explicit").get(timeout=0).reject("x")
        assert queue.consumer("c").take(timeout=0) == b"first"


@pytest.mark.parametrize("headers", [b"\xc1", b"\x93\x01\x02\x03", DEEP, b"\x81\xa2\xff\xfe\x01"])
def test_headers_that_are_no_mapping_are_corrupt(tmp_path, headers, monkeypatch):
    """Their checksum is right: somebody put them."""
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.setattr(arrow, "_check_headers", lambda _: None)
    with shmq.open(tmp_path / "q") as queue:
        stored = pyarrow.array([headers], pyarrow.binary())
        queue.put_arrow(pyarrow.record_batch({"payload": [b"x"], "headers": stored}))
        with pytest.raises(shmq.Corrupt, match="headers of message 0"):
            queue[0].headers  # noqa: B018
        assert queue[0].payload == b"x"


@pytest.mark.parametrize("file", ["ledger.shmq", "dedup.shmq"])
def test_a_record_grown_sparse_is_not_read_whole(source, tmp_path, file, monkeypatch):
    """Of a terabyte, what its header says."""
    path = tmp_path / "q"
    shutil.copytree(source, path)
    os.truncate(path / file, 1 << 40)
    asked, real = [], os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: asked.append(count) or real(fd, count, at))
    home = directory.Directory(path, read_only=True)
    with contextlib.closing(home), pytest.raises(shmq.Corrupt, match=file):
        (ledger.ledger if file == "ledger.shmq" else dedup.read_note)(home)
    assert max(asked) <= 20480


def test_a_ring_grown_sparse_is_neither_copied_nor_cleared_whole(source, tmp_path):
    """Of 64 GiB, what its header says: looking, entering in a new boot, renaming."""
    path = tmp_path / "q"
    shutil.copytree(source, path)
    file = path / "consumers" / "g.ring"
    os.truncate(file, 64 << 30)
    before = file.stat().st_blocks
    make_unclean(path)
    began = time.monotonic()
    with shmq.open(path, read_only=True) as queue:
        assert queue.group_place("g").head == 0
    with shmq.open(path) as queue:
        with queue.consumer("g", group=True, ack="explicit") as group:
            group.get(timeout=0).ack()
        queue.rename_consumer("g", "h")
    assert time.monotonic() - began < 20
    renamed = path / "consumers" / "h.ring"
    assert renamed.stat().st_size < 8 << 20
    assert renamed.stat().st_blocks <= max(before, 16384)


def test_a_checkpoint_with_a_name_that_is_none_is_passed_over(source, tmp_path):
    """Not UnicodeEncodeError for whoever lists the names."""
    path = tmp_path / "q"
    shutil.copytree(source, path)
    for name in (b"\xff\xfe.checkpoint", b"x" * 100 + b".checkpoint", b".checkpoint"):
        Path(os.fsdecode(os.path.join(os.fsencode(path / "consumers"), name))).write_bytes(b"x")
    with shmq.open(path) as queue:
        assert sorted(queue.stats().consumers) == ["c", "g"]
        assert queue.purge() == queue.next_index


@pytest.mark.parametrize(("at", "other"), [(72, "max_bytes"), (80, "max_messages")])
@pytest.mark.parametrize("open_already", [False, True])
def test_found_bounds_that_no_queue_has_were_a_value_error(path, at, other, open_already):
    """Found by the fuzzing of living queues, seed 1795505946."""
    with shmq.open(path) as queue:
        if not open_already:
            queue.close()
        change_journal(path, at, b"\xff" * 8)
        verb = functools.partial(queue.set_bounds, **{other: 1 << 20}) if open_already else lambda: shmq.open(path)
        with pytest.raises(shmq.Corrupt, match=r"queue\.shmq: no queue has bounds of"):
            verb()

"""A used file that is mapped here becomes the next chunk in one call of the core, and its name is found at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_files import spare

import shmq
from shmq import _native
from shmq.storage import files, new_chunks, spares, warm

MIB = 1 << 20
SIZE = 1 << 16


@pytest.fixture(autouse=True)
def nothing_else_is_mapped(monkeypatch):
    """What other tests have left is not watched here: only so many mappings are."""
    monkeypatch.setattr(warm, "_entries", [])


def go_round(queue, consumer, times):
    """Messages of 1 MiB, each taken before the next one."""
    for number in range(times):
        payload = bytes([number % 251]) * MIB
        queue.put(payload)
        assert consumer.take(timeout=30) == payload


def counted(monkeypatch, path):
    """What `renewed` answers from now on; and no file goes the long way, unless two of them want one name."""
    answers, real = [], new_chunks.renewed

    def noted(*given):
        answers.append(real(*given))
        return answers[-1]

    monkeypatch.setattr(new_chunks, "renewed", noted)
    names = [spares.name_of(file.stat().st_ino) for file in Path(path, "chunks").iterdir()]
    if len(set(names)) == len(names):
        monkeypatch.setattr(spares, "_zero", lambda *_: pytest.fail("a used file was cleared the long way"))
    return answers


# ---------------------------------------------------------------- as a whole
def test_a_queue_that_is_kept_up_with_goes_on_in_what_is_mapped_here(make, monkeypatch):
    """No used file is looked for, opened a second time, or mapped anew."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    go_round(queue, consumer, 100)
    renewed = counted(monkeypatch, queue.path)
    monkeypatch.setattr(_native, "map_held", lambda *_, **__: pytest.fail("a chunk was mapped anew"))
    go_round(queue, consumer, 100)
    assert len([fd for fd in renewed if fd is not None]) >= 100 // 16
    assert all(fd.fileno() == -1 for fd in renewed if fd is not None)  # closed again: a mapping keeps the lock


def test_where_blocks_may_be_shared_it_is_asked_first(make, monkeypatch):
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    go_round(queue, consumer, 60)
    monkeypatch.setattr(queue._session.home, "kind", "xfs")
    monkeypatch.setattr(_native.Chunk, "renewed", lambda *_, **__: pytest.fail("it was cleared at once"))
    go_round(queue, consumer, 60)


def test_each_message_is_whole_that_goes_through_files_with_and_without_a_grain(make):
    queue = make(chunk_bytes=4 * MIB)
    consumer = queue.consumer("c")
    for turn in range(12):
        some = [os.urandom(100_000 if turn % 2 else 900) for _ in range(120 if turn % 2 else 9_000)]
        for payload in some:
            queue.put(payload)
            assert consumer.take(timeout=0) == payload
    assert queue.verify().problems == ()


# ---------------------------------------------------------------- one call
@pytest.fixture
def used(tmp_path):
    """A used file under the name of its inode, its mapping, and what makes a chunk of it."""
    with files.open_directory(str(tmp_path)) as folder:
        spare(tmp_path, "used", SIZE, hint=8192, grain=0)
        os.chmod(tmp_path / "used", 0o600)
        info = os.stat(tmp_path / "used")
        name = spares.name_of(info.st_ino)
        os.rename(tmp_path / "used", tmp_path / name)
        with open(tmp_path / name, "r+b") as file:
            memory = _native.map_file(file.fileno(), SIZE, writable=True)

        def renewed(**other):
            fields = {
                "directory": folder.fileno(), "device": info.st_dev, "inode": info.st_ino, "owner": os.geteuid(),
                "chunk_id": 77, "epoch": 3, "base": 500, "sequence": 9, "index_spacing": 64, "grain": 0,
                "created_ns": 4711,
            } | other  # fmt: skip
            return _native.Chunk.renewed(memory, name, "new", b"q" * 16, **fields)

        yield tmp_path, name, memory, renewed


def test_it_has_the_new_name_a_header_zeros_and_the_lock_of_a_mapping(used):
    here, _, memory, renewed = used
    with renewed() as fd:
        assert os.listdir(here) == ["new"]
        assert os.pread(fd, SIZE, 0) == bytes(memory[:])
        fresh = bytearray(SIZE)
        _native.Chunk.format(fresh, b"q" * 16, 77, 3, 500, 9, 64, 0, 4711)
        assert bytes(memory[:8200]) == fresh[:8200]
        with open(here / "new", "r+b") as other:
            assert not spares.lock_alone(other.fileno())
            assert spares.lock_as_mapper(other.fileno())
    with open(here / "new", "r+b") as other:
        assert spares.lock_alone(other.fileno())


def refuse_rights(here, name):
    os.chmod(here / name, 0o640)


def link(here, name):
    os.link(here / name, here / "second")


def take_the_name(here, name):
    (here / "new").write_bytes(b"")


def replace(here, name):
    content = (here / name).read_bytes()
    os.unlink(here / name)
    (here / "filler").write_bytes(b"")  # or the next file might have the same inode
    (here / name).write_bytes(content)
    os.chmod(here / name, 0o600)
    os.unlink(here / "filler")


def rename(here, name):
    os.rename(here / name, here / "elsewhere")


def lengthen(here, name):
    os.truncate(here / name, SIZE + 4096)


def share(here, name):
    os.chmod(here, 0o2770)


@pytest.mark.parametrize("change", [refuse_rights, link, take_the_name, replace, rename, lengthen, share])
def test_what_is_not_as_it_should_be_is_left_to_the_long_way(used, change):
    here, name, memory, renewed = used
    change(here, name)
    before = sorted(os.listdir(here))
    descriptors = len(os.listdir("/proc/self/fd"))
    assert renewed() is None
    assert sorted(os.listdir(here)) == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    if change is not take_the_name:  # which is seen when the file is a chunk already, but for its name
        assert bytes(memory[128:136]) != bytes(8)


@pytest.mark.parametrize("lock", [spares.lock_as_mapper, spares.lock_alone])
def test_what_somebody_else_has_locked_is_left_as_it_is(used, lock):
    here, name, memory, renewed = used
    before = bytes(memory[:])
    with open(here / name, "r+b") as other:
        assert lock(other.fileno())
        assert renewed() is None
    assert bytes(memory[:]) == before
    with renewed():
        assert os.listdir(here) == ["new"]


def test_another_users_file_is_none_of_ours(used):
    here, name, _, renewed = used
    assert renewed(owner=os.geteuid() + 1) is None
    assert os.listdir(here) == [name]


@pytest.mark.parametrize(("hint", "seal", "had", "gets", "end"), [
    (8192, True, 0, 0, 8200), (8192, True, 4096, 4096, 8200), (8192, True, 4096, 0, 300_000),
    (8192, True, 0, 4096, 8200), (8192, False, 0, 0, 300_000), (299_992, True, 0, 0, 300_000),
    (299_984, True, 0, 0, 299_992), (None, True, 0, 0, 300_000), (1 << 30, True, 0, 0, 300_000),
])  # fmt: skip
def test_how_far_it_was_used_is_known_by_its_seal(tmp_path, hint, seal, had, gets, end):
    content = bytearray(spare(tmp_path, "used", 300_000, hint=hint, seal=seal, grain=had))
    assert _native.Chunk.used(content, gets) == end


# ---------------------------------------------------------------- its name
def test_a_file_gets_the_name_of_its_inode_and_the_next_one_where_that_is_taken(tmp_path):
    with files.open_directory(str(tmp_path)) as folder:
        (tmp_path / "a").write_bytes(b"")
        first = os.stat(tmp_path / "a").st_ino
        for turn in range(16):
            (tmp_path / "a").touch()
            wanted = f"n-{(os.stat(tmp_path / 'a').st_ino) % 16:x}"
            there = set(os.listdir(tmp_path))
            assert _native.rename_numbered(folder, "a", "n-", 16)
            (name,) = set(os.listdir(tmp_path)) - there
            assert name == wanted or wanted in there
            assert turn or name == f"n-{first % 16:x}"
        (tmp_path / "a").touch()
        assert not _native.rename_numbered(folder, "a", "n-", 16)
        assert not _native.rename_numbered(folder, "missing", "n-", 16)
        assert sorted(os.listdir(tmp_path)) == ["a", *(f"n-{digit}" for digit in "0123456789abcdef")]


@pytest.mark.parametrize("others", [0, 300])
def test_what_has_which_number_is_told_however_much_lies_beside_it(tmp_path, others):
    for number in range(others):
        (tmp_path / f"{number:016x}-{number:08x}.chunk").touch()
    for name, size in (("n-3", 10), ("n-f", 20), ("n-", 1), ("n-10", 1), ("n-g", 1), ("x-4", 1), ("n-F", 1)):
        (tmp_path / name).write_bytes(bytes(size))
    with files.open_directory(str(tmp_path)) as folder:
        found = _native.numbered(folder, "n-", 16)
        assert _native.numbered(folder, "n-", 15) == found[:1]
    for number, size, changed_ns, device, inode in found:
        info = Path(tmp_path, f"n-{number:x}").stat()
        assert (size, changed_ns, device, inode) == (info.st_size, info.st_ctime_ns, info.st_dev, info.st_ino)
    assert [(number, size) for number, size, *_ in found] == [(3, 10), (15, 20)]


def test_a_folder_that_cannot_be_listed_says_so(tmp_path):
    with open(tmp_path / "file", "wb") as file, pytest.raises(OSError, match="cannot tell which files there are"):
        _native.numbered(file.fileno(), "n-", 16)


def test_whether_there_is_a_name_is_asked_of_the_name_itself(tmp_path):
    os.symlink("nowhere", tmp_path / "link")
    with files.open_directory(str(tmp_path)) as folder:
        assert files.is_there(folder, "link")
        assert not files.is_there(folder, "nowhere")
        with pytest.raises(OSError, match="cannot tell whether there is a file"):
            files.is_there(folder, "x" * 300)


def test_what_waits_here_of_a_queue_is_told_newest_first(make):
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    go_round(queue, consumer, 100)
    warm.settle()
    home = queue._session.home
    waiting = warm.idle(home.queue_id)
    assert waiting
    order = [entry.key for entry in warm._entries if entry.idle and entry.key[2] and entry.queue == home.queue_id]
    assert list(waiting) == order[::-1]
    assert warm.idle(b"another queue id") == {}


def test_whoever_comes_second_to_a_chunk_that_was_renewed_here_maps_it_too(make, monkeypatch):
    """Another thread of this process may have taken the mapping that waited, once the chunk had its name."""
    queue = make(chunk_bytes=64 * MIB)
    consumer = queue.consumer("c")
    go_round(queue, consumer, 60)
    take, too_late = warm.take, []

    def taken(key, fd, *, locked=False):
        too_late.append(locked)
        return None if locked else take(key, fd)

    monkeypatch.setattr(warm, "take", taken)
    go_round(queue, consumer, 60)
    assert any(too_late)


# ---------------------------------------------------------------- in memory
def test_found_a_volatile_queue_made_each_chunk_the_long_way(monkeypatch):
    """It did not know what its file system was, so it asked each used file whether others share its blocks."""
    monkeypatch.setattr("shmq.storage.volatile.FIRST_CHUNK", MIB)
    with shmq.open(f"shm:test-renew-{os.getpid()}", chunk_bytes=64 * MIB) as queue, queue.consumer("c") as consumer:
        assert queue._session.home.kind == "tmpfs"
        go_round(queue, consumer, 60)
        renewed = counted(monkeypatch, queue.path)
        go_round(queue, consumer, 60)
        assert any(fd is not None for fd in renewed)


def test_what_lies_in_memory_is_told_from_what_does_not():
    for path, there in (("/dev/shm", True), ("/proc", False), ("/sys", False)):
        with _native.Fd.of(os.open, path, os.O_RDONLY) as fd:
            assert _native.in_memory(fd) == there
    assert not _native.in_memory(-1)

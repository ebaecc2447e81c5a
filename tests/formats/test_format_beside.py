"""Beside the real programs: their locks and their open files are respected, and nothing of ours is taken for theirs."""

import fcntl
import mmap
import os
import subprocess
from pathlib import Path

import pytest
from format_fixtures import place, tree
from support import Child, hold_until_killed

import shmq
from shmq import formats
from shmq.errors import Busy
from shmq.formats import Entry, libkestrel, sej
from shmq.formats.model import NO_TIME

TORN = sej.message(0, Entry(b"zero", None, 5)) + b"torn"
OFFSET = bytes(7) + b"\x01"


def queue(folder, **files):
    return place(folder, {"jnl/0000000000000000.jnl": TORN, "ofs/r.ofs": OFFSET} | files)


def locked(path):
    """A process that holds a lock as the real sej takes it: created, and flock."""

    def hold(say, path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hold_until_killed(say)

    child = Child(hold, path)
    child.hear()
    return child


def journals_for_the_watcher(root):
    """What the real WatchRootDir finds: the root, and any child of it, hidden or not, with a folder `jnl` in it."""
    return sorted(path.name for path in [root, *root.iterdir()] if (path / "jnl").is_dir())


# ------------------------------------------------------------------------------------------ locks


@pytest.mark.parametrize("lock", ["jnl.lck", "ofs/r.lck"])
def test_a_repair_in_place_is_refused_while_the_writer_or_a_reader_is_there(tmp_path, lock):
    folder = queue(tmp_path / "q")
    with locked(folder / lock) as child:
        before = tree(folder)
        with pytest.raises(Busy, match=f"process {child.pid} holds .*{lock}; nothing was changed"):
            sej.repair(folder, in_place=True)
        assert [path.name for path in tmp_path.iterdir()] == ["q"]
        assert {name: data for name, data in tree(folder).items() if not name.endswith(".lck")} == {
            name: data for name, data in before.items() if not name.endswith(".lck")
        }
        assert sej.repair(folder).messages == 1  # beside it, which touches nothing
    done = sej.repair(folder, in_place=True)
    assert sej.verify(folder) == []
    assert tree(done.kept)["jnl/0000000000000000.jnl"] == TORN


def test_the_locks_are_held_while_a_repair_moves_the_files(tmp_path, monkeypatch):
    folder = queue(tmp_path / "q")
    seen = []
    rename = Path.rename

    def look(path, target):
        for lock in (folder / "jnl.lck", *folder.parent.rglob("r.lck")):
            taken = subprocess.run(["flock", "-n", lock, "true"], check=False).returncode
            seen.append((lock.name, taken))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", look)
    sej.repair(folder, in_place=True)
    assert set(seen) == {("jnl.lck", 1), ("r.lck", 1)}
    assert not list(tmp_path.rglob("r.lck"))


def test_a_lock_that_its_holder_removes_is_taken_again(tmp_path, monkeypatch):
    """The real program removes the file after it has given the lock back: what was opened before is nobody's lock."""
    folder = queue(tmp_path / "q", **{"jnl.lck": b""})
    flock = fcntl.flock

    def remove_first(fd, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        (folder / "jnl.lck").unlink()
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    sej.repair(folder, in_place=True)
    assert (folder / "jnl.lck").exists()


def test_a_repair_that_cannot_move_a_folder_leaves_all_as_it_was(tmp_path, monkeypatch):
    folder = queue(tmp_path / "q")
    before = tree(folder)
    rename, moves = Path.rename, []

    def fail(path, target):
        moves.append(target)
        if target == folder / "ofs" and path.parent.name == "clean":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="No space left"):
        sej.repair(folder, in_place=True)
    assert moves[-3:] == [folder / "ofs", moves[2].parents[1] / "clean/jnl", folder / "jnl"]  # put back
    assert {name: data for name, data in tree(folder).items() if not name.endswith(".lck")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["q"]


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_a_libkestrel_queue_that_somebody_in_sight_has_open_is_not_repaired_in_place(tmp_path, how):
    """It has no lock. Its program maps the newest segment, and closes the descriptor."""
    folder = tmp_path / "q"
    libkestrel.write(folder, [Entry(b"x")], "jobs")
    (segment,) = folder.glob("jobs.[0-9]*")

    def use(say, path, how):
        file = open(path, "r+b")  # noqa: SIM115
        mapped = mmap.mmap(file.fileno(), 0)
        if how == "mapped":
            file.close()
        hold_until_killed(say)
        mapped.close()

    told = []
    with Child(use, segment, how) as child:
        child.hear()
        message = f"process {child.pid} has .*{segment.name} open"
        with pytest.raises(Busy, match=message):
            libkestrel.repair(folder, in_place=True, tell=told.append)
    assert told == []
    libkestrel.repair(folder, in_place=True, tell=told.append)
    assert ["nobody can know" in sentence for sentence in told] == [True]


def test_the_torn_end_that_a_living_writer_will_finish_is_no_damage(tmp_path):
    folder = queue(tmp_path / "src")
    with pytest.raises(shmq.Corrupt, match="ends inside a message"):
        formats.import_queue(folder, tmp_path / "q", resume=True)
    with locked(folder / "jnl.lck"):
        assert sej.verify(folder) == []
        assert formats.import_queue(folder, tmp_path / "q", resume=True).messages == 1
        place(folder, {"jnl/0000000000000000.jnl": TORN[:-4] + sej.message(1, Entry(b"one", None, 6))})
        assert formats.import_queue(folder, tmp_path / "q", resume=True).messages == 1
    place(folder, {"jnl/0000000000000000.jnl": TORN[:-4] + sej.message(1, Entry(b"one", None, 6)) + b"torn"})
    assert [problem.reason for problem in sej.verify(folder)] == ["ends inside a message: 4 bytes are left over"]


# ------------------------------------------------------------------------------------------ what a watcher sees


def test_what_is_being_written_is_no_journal_for_the_programs_watcher(tmp_path):
    """It looks at every child of its root, also at hidden ones."""
    root = tmp_path / "root"
    root.mkdir()
    seen = []

    def entries():
        for number in range(3):
            seen.append((journals_for_the_watcher(tmp_path), journals_for_the_watcher(root)))
            yield Entry(b"%d" % number, None, number, None, b"k", None, None, {"dir": "a" if number else "b"})

    sej.write(root / "orders", entries())
    sej.write(root, entries(), "more")
    sej.write(tmp_path / "other", entries(), by_dir=True)
    assert {tuple(found) for _, found in seen[:4]} == {(), ("orders",)}
    assert {tuple(found) for found, _ in seen} == {()}
    assert journals_for_the_watcher(root) == ["more", "orders"]
    assert sorted(path.name for path in root.iterdir()) == ["more", "orders"]


@pytest.mark.parametrize("which", ["root", "root/orders.1.000"])
def test_what_a_repair_keeps_is_no_journal_for_the_programs_watcher(tmp_path, which):
    root = tmp_path / "root"
    before = [tree(queue(root / name)) for name in ("orders.1.000", "orders.1.001")]
    done = sej.repair(tmp_path / which, in_place=True)
    assert journals_for_the_watcher(root) == ["orders.1.000", "orders.1.001"]
    for folder in (tmp_path, root / "orders.1.000", *tmp_path.iterdir()):
        assert not [name for name in journals_for_the_watcher(folder) if name.startswith(".")]
    kept = done.kept / "orders.1.000" if which == "root" else done.kept
    assert tree(kept) == before[0]
    assert sej.verify(tmp_path / which) == []


def test_the_clean_copy_of_a_shard_is_no_shard_of_that_root(tmp_path):
    queue(tmp_path / "root/orders.1.000")
    done = sej.repair(tmp_path / "root/orders.1.000")
    assert done.path == tmp_path / "orders.1.000.repaired"
    assert sej.directories(tmp_path / "root") == ["orders.1.000"]


def test_where_the_parent_is_another_mount_files_are_built_inside(tmp_path, monkeypatch):
    """A rename cannot leave a mount; inside, too, no watcher takes what is built for a journal."""
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setattr(formats._files, "_mount", str)
    seen = []

    def entries():
        seen.append(([path.name for path in tmp_path.iterdir()], journals_for_the_watcher(root), len(os.listdir(root))))
        yield Entry(b"x")

    sej.write(root, entries(), "orders")
    assert seen == [(["root"], [], 1)]
    assert os.listdir(root) == ["orders"]


# ------------------------------------------------------------------------------------------ no time


def timeless(folder):
    sej.write(folder, [Entry(b"none", None, NO_TIME), Entry(b"some", None, 5_000_000), Entry(b"none either")])
    return folder


@pytest.mark.parametrize("to", ["kestrel", "libkestrel", "qewqew", "sej"])
def test_no_time_does_not_become_a_time_of_the_past(tmp_path, to):
    """The real Kestrel, with a maxAge, delivers nothing that was put in 1677."""
    source = timeless(tmp_path / "src")
    assert [entry.time_ns for entry in sej.read(source)] == [NO_TIME, 5_000_000, NO_TIME]
    lossy = {"lossy": True} if to == "qewqew" else {}
    formats.convert_queue(source, tmp_path / "converted", to, **lossy)
    formats.import_queue(source, tmp_path / "imported")
    formats.export_queue(tmp_path / "imported", tmp_path / "exported", to, lossy=True)
    if to == "qewqew":
        return
    with shmq.open(tmp_path / "imported", read_only=True) as q, q.reader() as reader:
        now = [message.time_ns for message in reader]
    assert now[1] == 5_000_000
    assert all(now[0] - 60e9 < at < now[0] + 60e9 and at > 1.6e18 for at in (now[0], now[2]))
    for name in ("converted", "exported"):
        times = [entry.time_ns for entry in formats.read(tmp_path / name)]
        assert times[1] == 5_000_000
        if to == "sej":
            assert times == [NO_TIME, 5_000_000, NO_TIME]
        else:
            assert all(abs(at - now[0]) < 600e9 for at in (times[0], times[2]))


def test_messages_without_a_time_lose_none_in_a_format_that_has_none(tmp_path):
    sej.write(tmp_path / "src", [Entry(b"none", None, NO_TIME)])
    assert formats.convert_queue(tmp_path / "src", tmp_path / "q", "qewqew").lost == []
    formats.convert_queue(tmp_path / "q", tmp_path / "back", "sej")
    assert [entry.time_ns for entry in sej.read(tmp_path / "back")] == [NO_TIME]


def test_an_import_of_shards_without_times_goes_on_behind_what_is_in(tmp_path):
    """What was imported last is held against what the queue has, which is the time of the import."""
    formats.write(tmp_path / "src", [Entry(b"a"), Entry(b"b")], "sej", "s.1.000")
    formats.import_queue(tmp_path / "src", tmp_path / "q")
    segment = tmp_path / "src/s.1.000/jnl/0000000000000000.jnl"
    segment.write_bytes(segment.read_bytes() + sej.message(2, Entry(b"c")))
    assert formats.import_queue(tmp_path / "src", tmp_path / "q", resume=True).messages == 1


def test_the_time_that_older_imports_made_of_none_is_none_again(tmp_path):
    with shmq.open(tmp_path / "q") as q:
        q.put(b"x", time_ns=-(1 << 63) + 1, headers={"source": {"no_time": True}})
    formats.export_queue(tmp_path / "q", tmp_path / "out", "libkestrel")
    assert [entry.time_ns > 1e18 for entry in formats.read(tmp_path / "out")] == [True]

"""QewQew: what the real program wrote is read, what is written is what it would write, damage is named."""

import contextlib
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from format_fixtures import Case, case, cases, place, tree

from shmq import formats
from shmq.errors import BadFormat, Busy, Corrupt, NotFound, TooLarge, Unsafe
from shmq.formats import Entry, qewqew

repair_module = importlib.import_module("shmq.formats.qewqew.repair")

# Derived by hand from the format's page; every integer is big-endian.
#   00 03              header file: the first chunk is 3
#   00 00 00 0d        i32 head-ptr 13: the element at 10 (1 byte) has been taken
#   00 00 00 13        i32 tail-ptr 19
#   00 04              u16 next chunk 4
#   00 01 78           element "x", taken
#   00 02 68 69        element "hi"
#   00 00              element of no bytes
#   ff ff ff           stale bytes past the tail: they mean nothing
HEADER = bytes.fromhex("0003")
CHUNK_3 = bytes.fromhex("0000000d 00000013 0004 000178 00026869 0000 ffffff")
#   head 10, tail 15, no next; element "yes"
CHUNK_4 = bytes.fromhex("0000000a 0000000f 0000 0003796573 00000000000000")


def queue(folder, **changed):
    return (
        place(
            folder,
            {"q": HEADER, "q.3": CHUNK_3, "q.4": CHUNK_4}
            | {name.replace("_", "."): data for name, data in changed.items()},
        )
        / "q"
    )


def payloads(path, **options):
    return [entry.payload for entry in qewqew.read(path, **options)]


# ------------------------------------------------------------------------------------------ by hand


def test_chunks_derived_by_hand_are_read(tmp_path):
    header = queue(tmp_path)
    assert payloads(header) == [b"hi", b"", b"yes"]
    assert payloads(header, as_program=True) == [b"hi", b"", b"yes"]
    assert [entry.extra for entry in qewqew.read(header)] == [{"chunk": 3}, {"chunk": 3}, {"chunk": 4}]
    state = qewqew.state(header)
    assert (state.problems, state.messages, state.files) == ([], 3, ["q", "q.3", "q.4"])


def test_they_are_written_byte_for_byte(tmp_path):
    """
    Chunks of 18 bytes: 10 of header, 4 for "hi" and 2 for the empty element make 16; "yes" (5) does not fit any more.
    """
    qewqew.write(tmp_path / "q", [Entry(b"hi"), Entry(b""), Entry(b"yes")], chunk_bytes=18, first_chunk=65534)
    assert {
        "q": bytes.fromhex("fffe"),
        "q.65534": bytes.fromhex("0000000a 00000010 0001 00026869 0000 0000"),
        "q.1": bytes.fromhex("0000000a 0000000f 0000 0003796573 000000"),
    } == tree(tmp_path)


def test_a_header_that_is_not_there_is_the_empty_queue(tmp_path):
    """Closing an empty queue deletes its files, so no file and no element are the same thing."""
    assert payloads(tmp_path / "q") == []
    assert qewqew.verify(tmp_path / "q") == []
    with pytest.raises(NotFound):
        payloads(tmp_path / "no" / "q")
    queue(tmp_path)
    with pytest.raises(NotFound, match=r"no QewQew 'p' in .*\['q'\]"):  # whoever names it has seen it there
        qewqew.read(tmp_path, "p")


def test_nobody_can_follow_a_qewqew(tmp_path):
    with pytest.raises(BadFormat, match="one process"):
        qewqew.read(queue(tmp_path), follow=True)


@pytest.mark.parametrize(
    ("changed", "delivered", "reason"),
    [
        ({"q_3": CHUNK_3[:8] + b"\0\3" + CHUNK_3[10:]}, [b"hi", b""], "cycle"),
        ({"q_4": CHUNK_4[:8] + b"\0\3" + CHUNK_4[10:]}, [b"hi", b"", b"yes"], "cycle"),
        ({"q_3": CHUNK_3[:8] + b"\0\7" + CHUNK_3[10:]}, [b"hi", b""], "missing"),
        ({"q": b"\0\7"}, [], "missing"),
        ({"q": b"\0\3\0"}, [b"hi", b"", b"yes"], "3 bytes where 2"),
        ({"q_3": CHUNK_3[:9]}, [], "not a chunk"),
        ({"q_3": bytes.fromhex("00000014") + CHUNK_3[4:]}, [b"yes"], "passed over"),
        ({"q_3": bytes.fromhex("ffffffff") + CHUNK_3[4:]}, [b"yes"], "passed over"),
        ({"q_3": bytes.fromhex("0000000d 7fffffff") + CHUNK_3[8:]}, [b"hi", b"", b"yes"], "past the end"),
        ({"q_3": CHUNK_3[:13] + b"\0\x09" + CHUNK_3[15:]}, [b"yes"], "runs past the tail"),
    ],
)
def test_damage_costs_as_little_as_it_can(tmp_path, changed, delivered, reason):
    """A bad pointer or length ends its chunk; the reference to the next chunk is not part of that damage."""
    header = queue(tmp_path, **changed)
    assert delivered == payloads(header)
    assert any(reason in problem.reason for problem in qewqew.verify(header))
    with pytest.raises(Corrupt):
        payloads(header, strict=True)


def test_a_chunk_whose_head_was_never_written_begins_at_its_first_element(tmp_path):
    """
    A put that failed links a chunk whose head is 0; the next put writes only the tail. The real program then
    delivers the chunk's own header as elements, and changes it while doing so: at 0 the length 0, which moves the
    head to 2; at 2 the length is that head's low half, 2, and the two bytes after it; and so on.
    """
    header = queue(tmp_path, q_4=bytes.fromhex("00000000 0000000f 0000 0003796573 00000000000000"))
    assert payloads(header) == [b"hi", b"", b"yes"]
    # at 6: length 0x000f = 15 runs past the 22 bytes of this file, and the program's buffer is at its end
    assert payloads(header, as_program=True) == [b"hi", b"", b"", b"\0\0"]


@pytest.mark.parametrize(
    ("changed", "size", "ours", "theirs"),
    [
        # It maps 18 bytes of every chunk. Of chunk 3 only 15 are there: "hi" has lost its bytes, which are zeros, and
        # the empty element behind it, whose length is zeros, too, is not told from a whole one.
        ({"q_3": CHUNK_3[:15] + b"", "q_4": CHUNK_4}, 22, [b"yes"], [b"\0\0", b"", b"yes"]),
        # Cut inside its own header (head 13, tail's first three bytes 0: tail 0, next 0): one chunk, and empty.
        ({"q_3": CHUNK_3[:7]}, 22, [], []),
        # A head outside of what it has mapped: it fails at every attempt, and never comes to the next chunk.
        ({"q_3": bytes.fromhex("ffffffff") + CHUNK_3[4:]}, 22, [b"yes"], []),
        ({"q_3": bytes.fromhex("00000015 00000016") + CHUNK_3[8:]}, 22, [b"yes"], []),
        # Head is tail in a chunk that is not the last: it takes the stale bytes behind them (ff ff: too long) ...
        ({"q_3": bytes.fromhex("00000013 00000013") + CHUNK_3[8:]}, 22, [b"yes"], []),
        # ... or, where they are zeros, an empty element, and goes on.
        ({"q_3": bytes.fromhex("00000013 00000013") + CHUNK_3[8:19] + bytes(3)}, 22, [b"yes"], [b"", b"yes"]),
        # 65535 is an id that it never gives out; it looks for it as 0.
        (
            {"q": b"\xff\xff", "q_0": CHUNK_4, "q_65535": CHUNK_3[:8] + b"\0\0" + CHUNK_3[10:]},
            22,
            [b"hi", b""],
            [b"yes"],
        ),
    ],
)
def test_the_program_checks_nothing_and_maps_as_many_bytes_as_it_is_told(tmp_path, changed, size, ours, theirs):
    """It was seen to do each of these; by the document only what is whole is delivered."""
    header = queue(tmp_path, **changed)
    assert payloads(header) == ours
    assert payloads(header, as_program=True, chunk_bytes=size) == theirs
    assert payloads(header, as_program=True) == theirs  # the longest file is as long


def test_a_cycle_keeps_the_real_program_from_opening(tmp_path):
    """It locks the same file twice (OverlappingFileLockException)."""
    header = queue(tmp_path, q_4=CHUNK_4[:8] + b"\0\3" + CHUNK_4[10:])
    with pytest.raises(Corrupt, match="cannot open"):
        payloads(header, as_program=True)


def test_chunks_that_nothing_leads_to_are_counted_and_can_be_taken_back(tmp_path):
    """A crash in dequeue() deletes the chunk before the header is updated: what follows it is out of reach."""
    folder = place(tmp_path / "d", {"q": HEADER, "q.4": CHUNK_4})
    assert payloads(folder / "q") == []
    assert [
        t for t, p in zip(["missing", "1 elements"], qewqew.verify(folder / "q"), strict=True) if t in p.reason
    ] == ["missing", "1 elements"]
    done = qewqew.repair(folder / "q")
    assert payloads(done.path) == [b"yes"]
    assert qewqew.repair(folder / "q", orphans=False, to=tmp_path / "other").messages == 0
    done = qewqew.repair(folder / "q", in_place=True)
    assert payloads(folder / "q") == [b"yes"]
    assert tree(done.kept) == {"q": HEADER, "q.4": CHUNK_4}


def test_unreferenced_chunks_of_a_cleared_queue_are_only_taken_when_asked(tmp_path):
    folder = place(tmp_path / "d", {"q": b"\0\0", "q.4": CHUNK_4})
    assert qewqew.repair(folder / "q").messages == 0
    assert qewqew.repair(folder / "q", to=tmp_path / "more", orphans=True).messages == 1


@pytest.mark.parametrize(
    ("entries", "options", "error"),
    [
        ([Entry(b"x", key=b"k")], {}, Unsafe),
        ([Entry(b"x", time_ns=0)], {}, Unsafe),
        ([Entry(bytes(65536))], {}, TooLarge),
        ([Entry(bytes(9))], {"chunk_bytes": 20}, TooLarge),
        ([Entry(b"x")], {"consumers": {"r": (0, ())}}, Unsafe),
        ([Entry(b"x")], {"first_chunk": 65535}, BadFormat),
        ([Entry(b"x")], {"chunk_bytes": 1 << 31}, BadFormat),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path, entries, options, error):
    with pytest.raises(error):
        qewqew.write(tmp_path / "q", entries, **options)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_queue_is_never_replaced(tmp_path):
    header = queue(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(Unsafe, match="nothing was changed"):
        qewqew.write(header, [Entry(b"x")])
    assert before == tree(tmp_path)


# ------------------------------------------------------------------------------------------ fixtures


@pytest.mark.parametrize("path", cases("qewqew"))
def test_elements_are_what_a_correct_reader_delivers(path):
    it = Case(path)
    header = it.path / it["header_file"]
    assert [bytes.fromhex(item) for item in it["items_hex"]] == payloads(header)
    damaged = bool(it["orphan_chunk_files"]) or any({"error", "missing"} & set(chunk) for chunk in it["chunks"])
    assert damaged == bool(qewqew.verify(header))


@pytest.mark.parametrize("path", cases("qewqew"))
def test_as_program_delivers_what_the_real_program_drained(path):
    it = Case(path)
    drained = [bytes.fromhex(item) for item in it["observed"]["real_drain_hex"]]
    assert drained == payloads(it.path / it["header_file"], as_program=True)


@pytest.mark.parametrize("path", cases("qewqew"))
def test_a_round_trip_keeps_everything(path, tmp_path):
    it = Case(path)
    header = it.path / it["header_file"]
    formats.write(tmp_path / "q", formats.read(header, "qewqew"), "qewqew", chunk_bytes=it["chunk_size"])
    assert payloads(header) == payloads(tmp_path / "q")
    assert qewqew.verify(tmp_path / "q") == []


@pytest.mark.parametrize("name", ["exact_fit", "id_wrap", "max_ushort", "one_chunk"])
def test_writing_gives_the_real_programs_bytes(name, tmp_path):
    it = case("qewqew", name)
    header = it.path / it["header_file"]
    head = int.from_bytes((it.path / f"{it['header_file']}.{it['first_chunk']}").read_bytes()[:4])
    if head != 10:
        pytest.skip("elements have been taken; their bytes are still in the chunk")
    target = tmp_path / it["header_file"]
    qewqew.write(target, qewqew.read(header), chunk_bytes=it["chunk_size"], first_chunk=it["first_chunk"])
    ours, theirs = tree(tmp_path), tree(it.path)
    assert ours.keys() == theirs.keys()
    for file, data in theirs.items():
        end = int.from_bytes(data[4:8]) if len(data) > 2 else 2
        assert len(data) == len(ours[file])
        assert data[:end] == ours[file][:end]  # past the tail are stale bytes, which mean nothing


# ------------------------------------------------------------------------------------------ the lock


@contextlib.contextmanager
def opened_elsewhere(header):
    """Another process has locked the header file as the real program does, until the end."""
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB);"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(header)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        yield child
        child.stdin.close()


def test_a_queue_that_somebody_has_open_is_not_repaired_in_place(tmp_path):
    """Its program would go on with chunks that are put aside, and what it acknowledges would be gone."""
    header = queue(tmp_path, q=HEADER + b"!")
    before = tree(tmp_path)
    with opened_elsewhere(header) as child:
        with pytest.raises(Busy, match=f"process {child.pid} has it open .* nothing was changed"):
            qewqew.repair(header, in_place=True)
        assert tree(tmp_path) == before
        assert qewqew.repair(header).messages == 3  # beside it, anybody may
    assert qewqew.repair(header, in_place=True).messages == 3


def test_the_lock_is_held_until_a_repair_in_place_has_ended(tmp_path, monkeypatch):
    header = queue(tmp_path, q=HEADER + b"!")
    file = header.stat().st_ino
    seen = []

    def refused(*_):
        script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        done = subprocess.run([sys.executable, "-c", script, str(header)], check=False, capture_output=True)
        seen.append(done.returncode)

    real = repair_module._write_header
    monkeypatch.setattr(repair_module, "_write_header", lambda fd, chunk: (refused(), real(fd, chunk)))
    done = qewqew.repair(header, in_place=True)
    assert seen == [1, 1]
    refused()
    assert seen == [1, 1, 0]
    assert header.stat().st_ino == file  # who had opened it before has locked what counts
    assert (payloads(header), qewqew.verify(header)) == ([b"hi", b"", b"yes"], [])
    assert tree(done.kept) == {"q": HEADER + b"!", "q.3": CHUNK_3, "q.4": CHUNK_4}
    assert sorted(tree(tmp_path)) == sorted([*(f"{done.kept.name}/{n}" for n in ("q", "q.3", "q.4")), "q", "q.1"])


def test_a_repair_in_place_that_is_stopped_leaves_a_queue_that_opens(tmp_path, monkeypatch):
    """Whatever step it is stopped at, each element is in the queue or in what was put aside."""

    class Stopped(BaseException):
        pass

    steps = 0
    while True:
        steps += 1
        folder = tmp_path / str(steps)
        header = queue(folder)
        left = steps

        def step(real, *words):
            nonlocal left
            left -= 1
            if not left:
                raise Stopped
            return real(*words)

        with monkeypatch.context() as patch:
            for name, of in (("rename", Path), ("unlink", Path), ("pwrite", os), ("ftruncate", os)):
                real = getattr(of, name)
                patch.setattr(of, name, lambda *words, real=real: step(real, *words))
            try:
                qewqew.repair(header, in_place=True)
            except Stopped:
                pass
            else:
                break
        # The queue opens, empty or whole; and what was there is all in it, or all where it was put aside.
        assert payloads(header, as_program=True) in ([], [b"hi", b"", b"yes"])
        chunks = {path.name: path.read_bytes() for path in folder.rglob("q.*") if "repaired" not in path.name}
        assert payloads(header) == [b"hi", b"", b"yes"] or {"q.3": CHUNK_3, "q.4": CHUNK_4}.items() <= chunks.items()
    assert steps > 6


def test_an_empty_queue_without_files_is_imported_as_that(tmp_path):
    """The program deletes them when it closes an empty one: an import at that moment has nothing to bring, twice."""
    assert formats.import_queue(tmp_path / "q", tmp_path / "into", format="qewqew").messages == 0
    assert formats.import_queue(tmp_path / "q", tmp_path / "into", format="qewqew", resume=True).messages == 0
    formats.write(tmp_path / "q", [Entry(b"a"), Entry(b"b")], "qewqew")
    assert formats.import_queue(tmp_path / "q", tmp_path / "into", format="qewqew").messages == 2
    with pytest.raises(NotFound, match="there is no directory"):
        formats.import_queue(tmp_path / "no" / "q", tmp_path / "into", format="qewqew")

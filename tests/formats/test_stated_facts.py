"""
What the formats' documents state and no example shows: each fact with bytes that were derived from it by hand.

Every vector is built from the page's own tables by `struct`, not by the writers of shmq.formats.
"""

import struct

import pytest
from format_fixtures import place

from shmq import formats
from shmq.errors import Corrupt, Unsafe
from shmq.formats import Entry, kestrel, libkestrel, qewqew, sej

MS = 1_000_000
SECOND = 1_000_000_000


def payloads(module, path, *more, **options):
    return [entry.payload.decode() for entry in module.read(path, *more, **options)]


# ------------------------------------------------------------------------------------------ Kestrel
def addx(text, added=1000, expires=0):
    """02, i32 size = 16 + n, i64 add ms, i64 expiry ms, n bytes."""
    return struct.pack("<Biqq", 2, 16 + len(text), added, expires) + text.encode()


def op(code, xid=None):
    """The opcode alone, or with an i32 transaction id."""
    return bytes((code,)) if xid is None else struct.pack("<Bi", code, xid)


REMOVE, TENTATIVE, SAVE, UNREMOVE, CONFIRM, OPEN = 1, 3, 4, 5, 6, 9
EVERY_OPCODE = [
    struct.pack("<Bii", 0, 5, 9) + b"a",  # ADD, size 4 + 1, expiry 9 s
    addx("b"),
    struct.pack("<Biiqq", 7, 5, 17, 1, 0) + b"c",  # ADD_XID 5
    op(REMOVE),
    op(OPEN, 3),
    op(UNREMOVE, 3),
    op(OPEN, 4),
    op(SAVE, 8),
    op(CONFIRM, 4),
    struct.pack("<Biiqq", 8, 4, 17, 1, 0) + b"d",  # CONTINUE 4
    op(TENTATIVE),
]


def test_a_journal_cut_at_any_byte_is_replayed_to_its_last_whole_record(tmp_path):
    data = b"".join(EVERY_OPCODE)
    ends = [sum(map(len, EVERY_OPCODE[: n + 1])) for n in range(len(EVERY_OPCODE))]
    whole = {0: []}
    for n, end in enumerate(ends):
        folder = place(tmp_path / f"whole{n}", {"cars": data[:end]})
        whole[end] = payloads(kestrel, folder, "cars")
    assert whole[ends[-1]] == ["c", "d"]
    for cut in range(1, len(data)):
        folder = place(tmp_path / f"cut{cut}", {"cars": data[:cut]})
        begin = max(end for end in whole if end <= cut)
        assert payloads(kestrel, folder, "cars") == whole[begin], cut
        problems = kestrel.state(folder, "cars").problems
        assert [problem.position for problem in problems] == ([] if cut in whole else [begin]), cut


@pytest.mark.parametrize(
    ("records", "left"),
    [
        ([addx("a"), op(REMOVE), op(REMOVE), addx("b")], ["b"]),  # REMOVE on an empty queue does nothing
        ([op(OPEN, 1), addx("a")], ["a"]),  # nor does opening
        ([addx("a"), op(CONFIRM, 7), op(UNREMOVE, 7)], ["a"]),  # unknown ids do nothing
        ([addx("a"), addx("b"), op(OPEN, 1), op(CONFIRM, 1), op(OPEN, 1)], ["b"]),  # an id is used again
        ([addx("a"), addx("b"), op(OPEN, -3), op(OPEN, 2)], ["a", "b"]),  # the lowest id first, negative ones too
        ([addx("a"), addx("b"), op(OPEN, 2), op(OPEN, -3)], ["b", "a"]),
        ([addx("a"), op(OPEN, 0), op(CONFIRM, 0)], []),  # 0 is an id like any other for opcode 9
        ([addx("a"), addx("b"), addx("c"), op(OPEN, 5), op(OPEN, 6), op(UNREMOVE, 5)], ["b", "a", "c"]),
        ([addx("a"), struct.pack("<Biiqq", 8, 9, 17, 1, 0) + b"b"], ["a", "b"]),  # CONTINUE of nothing is an add
        ([addx("a"), op(OPEN, 1), struct.pack("<Biiqq", 8, 1, 17, 1, 0) + b"b"], ["b"]),
    ],
)
def test_what_operations_leave(tmp_path, records, left):
    folder = place(tmp_path, {"cars": b"".join(records)})
    assert payloads(kestrel, folder, "cars") == left
    assert payloads(kestrel, folder, "cars", as_program=True) == left


def test_an_id_that_is_opened_while_it_is_open_costs_the_item_it_had_and_that_is_said(tmp_path):
    data = [addx("a"), addx("b"), op(OPEN, 5), op(OPEN, 5), addx("c")]
    folder = place(tmp_path, {"cars": b"".join(data)})
    assert payloads(kestrel, folder, "cars") == ["b", "c"]
    (problem,) = kestrel.state(folder, "cars").problems
    assert problem[:2] == ("cars", len(b"".join(data[:3])))


def test_opcode_3_is_the_id_0_for_the_program(tmp_path):
    folder = place(tmp_path, {"cars": op(SAVE, 41) + addx("a") + op(TENTATIVE)})
    assert list(kestrel.state(folder, "cars").open) == [42]
    assert list(kestrel.state(folder, "cars", as_program=True).open) == [0]


@pytest.mark.parametrize(
    ("before", "xid"),
    [
        ([op(SAVE, 41)], 42),  # the next one
        ([op(SAVE, -1)], 1),  # never 0
        ([op(SAVE, (1 << 31) - 1)], -(1 << 31)),  # ids wrap to negative
        ([addx("x"), op(OPEN, 6), op(SAVE, 5)], 7),  # nor one that is open
        ([addx("x"), op(OPEN, 9), op(CONFIRM, 9)], 10),  # opcode 9 moves the counter
    ],
)
def test_opcode_3_takes_the_next_free_id(tmp_path, before, xid):
    folder = place(tmp_path, {"cars": b"".join([*before, addx("a"), op(TENTATIVE)])})
    assert kestrel.state(folder, "cars").open[xid].payload == b"a"


def test_times_and_expiries_may_be_negative_and_are_kept(tmp_path):
    data = addx("a", -5, -7) + struct.pack("<Bii", 0, 5, -9) + b"b"
    first, second = kestrel.read(place(tmp_path, {"cars": data}), "cars")
    assert (first.time_ns, first.expires_ns) == (-5 * MS, -7 * MS)
    assert (second.time_ns, second.expires_ns) == (None, -9 * SECOND)
    assert payloads(kestrel, tmp_path, "cars", now_ns=0) == []


def test_a_state_dump_ends_its_own_file_only(tmp_path):
    """08, xid, count 1; then the ADD_XID and REMOVE_TENTATIVE that were for a reader that lags behind."""
    dump = struct.pack("<Bii", 8, 3, 1) + struct.pack("<Biiqq", 7, 3, 17, 1, 0) + b"z" + op(TENTATIVE)
    folder = place(tmp_path, {"cars.1": addx("a") + dump + addx("never"), "cars": addx("b")})
    assert payloads(kestrel, folder, "cars") == ["a", "b"]
    assert kestrel.state(folder, "cars").problems == []


def test_a_state_dump_of_nothing_ends_its_file_too(tmp_path):
    """Its size as a CONTINUE would be 0, which none has."""
    folder = place(tmp_path, {"cars.1": addx("a") + struct.pack("<Bii", 8, 3, 0) + addx("never"), "cars": addx("b")})
    assert payloads(kestrel, folder, "cars") == ["a", "b"]
    assert kestrel.state(folder, "cars").problems == []


@pytest.mark.parametrize(("added", "expires"), [(7, 0), (7 + (15 << 40), 1), (7 + (9 << 40), 2)])
def test_a_continue_whose_times_begin_as_the_records_of_a_dump_is_none(tmp_path, added, expires):
    """
    The add time's first byte is an ADD_XID's opcode, its last three and the expiry's first are that record's size, and
    where it would end stands a REMOVE_TENTATIVE: that is as near as a CONTINUE of before 2527 comes to a dump.
    """
    size = (added >> 40) + (expires << 24)
    record = struct.pack("<Biiqq", 8, 1, 16 + 1, added, expires) + b"c"
    data = addx("a") + record
    end = len(addx("a")) + 18 + size
    if end > len(data):
        data += struct.pack("<Biqq", 2, 16 + end - len(data), 1, 0)
        data += bytes(end - len(data)) + bytes((TENTATIVE,))
    place(tmp_path, {"cars": data + bytes(40)})
    assert payloads(kestrel, tmp_path, "cars")[:2] == ["a", "c"]


@pytest.mark.parametrize("opcode", [0, 2, 7, 8])
@pytest.mark.parametrize("expires", [0, 5])
def test_an_expiry_of_0_is_none_for_every_opcode_that_adds(tmp_path, opcode, expires):
    if opcode == 0:
        data = struct.pack("<Bii", 0, 5, expires)
    elif opcode == 2:
        data = struct.pack("<Biqq", 2, 17, 9, expires)
    else:
        data = struct.pack("<Biiqq", opcode, 3, 17, 9, expires)
    (entry,) = kestrel.read(place(tmp_path, {"cars": data + b"x"}), "cars")
    assert entry.expires_ns == (expires * (SECOND if opcode == 0 else MS) or None)
    assert entry.time_ns == (None if opcode == 0 else 9 * MS)


def test_rotated_files_are_ordered_as_numbers_and_a_pack_hides_its_own_number_too(tmp_path):
    folder = place(tmp_path, {"cars.9": addx("9"), "cars.10": addx("10"), "cars.100": addx("100"), "cars": addx("now")})
    assert payloads(kestrel, folder, "cars") == ["9", "10", "100", "now"]
    place(tmp_path, {"cars.9.pack": addx("p9"), "cars.10.pack": addx("p10"), "cars~~11": addx("never")})
    assert payloads(kestrel, folder, "cars") == ["p10", "100", "now"]
    assert payloads(kestrel, folder, "cars", as_program=True) == ["p10", "100", "now"]


def test_a_copy_of_a_rotated_file_is_replayed_by_the_program_only_and_is_a_pack_only_behind_a_dot(tmp_path):
    """It looks at the second field, which is the number, and at the end of the name."""
    files = {"cars.1": addx("1"), "cars.2.oldpack": addx("2"), "cars.3.old.pack": addx("3"), "cars.4": addx("4")}
    folder = place(tmp_path, files)
    assert payloads(kestrel, folder, "cars") == ["1", "4"]
    assert payloads(kestrel, folder, "cars", as_program=True) == ["3", "4"]
    (folder / "cars.3.old.pack").unlink()
    assert payloads(kestrel, folder, "cars", as_program=True) == ["1", "2", "4"]


def test_a_missing_current_file_is_an_empty_one(tmp_path):
    folder = place(tmp_path, {"cars.5": addx("a") + op(OPEN, 2)})
    assert payloads(kestrel, folder, "cars") == ["a"]
    assert list(kestrel.state(folder, "cars").open) == [2]


@pytest.mark.parametrize("size", [-1, -(1 << 31)])
def test_a_negative_size_is_damage_here_and_keeps_the_program_from_starting(tmp_path, size):
    folder = place(tmp_path, {"cars": addx("a") + struct.pack("<Bi", 2, size) + bytes(30)})
    assert payloads(kestrel, folder, "cars") == ["a"]
    with pytest.raises(Corrupt):
        list(kestrel.read(folder, "cars", as_program=True))


# ------------------------------------------------------------------------------------------ libkestrel
def put(index, text="", added=1000, expires=None, errors=0):
    """86 or 88; i32 size, i32 errors, i64 id, i64 add ms, [i64 expiry ms]; payload."""
    fields = struct.pack("<iiqq", len(text), errors, index, added)
    if expires is None:
        return b"\x86" + fields + text.encode()
    return b"\x88" + fields + struct.pack("<q", expires) + text.encode()


def segment(*records):
    return bytes.fromhex("27642603") + b"".join(records)


def checkpoint(head, *done):
    """02 and the id of the last item consumed; 91, eight bytes an id, and the ids."""
    packed = struct.pack("<Bq", 2, head) + struct.pack("<Bi", 0x91, 8 * len(done))
    return bytes.fromhex("263c2603") + packed + struct.pack(f"<{len(done)}q", *done)


def test_a_segment_cut_at_any_byte_holds_its_whole_records(tmp_path):
    records = [put(1, "one"), put(2, "", expires=-1), put(3, "three")]
    data = segment(*records)
    ends = [4 + sum(map(len, records[:n])) for n in range(4)]
    for cut in range(len(data) + 1):
        folder = place(tmp_path / str(cut), {"jobs.1": data[:cut], "jobs.read.": checkpoint(0)})
        whole = sum(end <= cut for end in ends[1:])
        assert payloads(libkestrel, folder, "jobs") == ["one", "", "three"][:whole], cut
        (*_, begin) = [0, *(end for end in ends if end <= cut)]
        found = [problem.position for problem in libkestrel.state(folder, "jobs").problems]
        assert found == ([] if cut in ends else [begin if cut > 4 else 0]), cut


@pytest.mark.parametrize(
    ("bytes_of_it", "place_of_it"),
    [
        (checkpoint(99), (6, ())),  # a head behind the newest id is moved to it
        (checkpoint(1), (3, ())),  # one before the oldest, to the one before that
        (checkpoint(4, 2, 4, 6, 9), (4, (6,))),  # ids at or below the head, and behind the newest, do not count
        (checkpoint(3)[:4], (3, ())),  # the magic alone: nothing consumed
        (checkpoint(3)[:4] + struct.pack("<Bi", 0x91, 8) + struct.pack("<q", 5), (3, (5,))),  # no READ_HEAD
        (checkpoint(5) + checkpoint(4)[4:], (4, ())),  # the last record counts
        (checkpoint(4) + put(9), (4, ())),  # a PUT in a checkpoint is passed over
    ],
)
def test_where_a_reader_stands(tmp_path, bytes_of_it, place_of_it):
    folder = place(tmp_path, {"jobs.1": segment(put(4, "4"), put(5, "5"), put(6, "6")), "jobs.read.r": bytes_of_it})
    assert libkestrel.state(folder, "jobs").consumers == {"r": place_of_it}


def test_names_of_segments_and_readers(tmp_path):
    files = {
        "jobs.7": segment(put(1, "a")),
        "jobs.3": segment(put(2, "b")),  # ordered by the first id, not by the number
        "jobs.9.bak": segment(put(3, "c")),
        "jobs2.1": segment(put(1, "other")),
        "archive~jobs.1": segment(put(1, "archived")),
        "jobs.read.a.b": checkpoint(1),
        "jobs.read.a~~5": checkpoint(2),
        "jobs.5": b"",
        "jobs.6": b"none",
    }
    folder = place(tmp_path, files)
    assert payloads(libkestrel, folder, "jobs") == ["a", "b"]
    assert payloads(libkestrel, folder, "jobs", as_program=True) == ["a", "b", "c"]
    found = libkestrel.state(folder, "jobs")
    assert found.consumers == {"a.b": (1, ())}
    assert sorted(problem.file for problem in found.problems) == ["jobs.5", "jobs.6"]
    assert libkestrel.queues(folder) == ["jobs", "jobs2"]


def test_of_two_segments_with_one_first_id_the_higher_number_counts(tmp_path):
    folder = place(tmp_path, {"jobs.1": segment(put(1, "old")), "jobs.2": segment(put(1, "new"), put(2, "b"))})
    assert payloads(libkestrel, folder, "jobs") == ["new", "b"]
    assert [problem.file for problem in libkestrel.state(folder, "jobs").problems] == ["jobs.1"]


def test_times_of_libkestrel_may_be_negative_and_an_expiry_of_0_is_one(tmp_path):
    folder = place(tmp_path, {"jobs.1": segment(put(1, added=-5, expires=-6), put(2, expires=0), put(3, errors=-1))})
    first, second, third = libkestrel.read(folder, "jobs")
    assert (first.time_ns, first.expires_ns, second.expires_ns, third.expires_ns) == (-5 * MS, -6 * MS, 0, None)
    assert third.attempts == -1


GAP = {"jobs.1": segment(put(1, "1"), put(2, "2")), "jobs.2": segment(put(5, "5"), put(7, "7"))}


def test_the_programs_reader_stops_where_the_next_segment_does_not_begin_with_the_next_id(tmp_path):
    """It looks for the segment that holds id 3, which is the one that it is in. Seen with the real program."""
    folder = place(tmp_path, GAP | {"jobs.read.": checkpoint(0), "jobs.read.late": checkpoint(5)})
    assert payloads(libkestrel, folder, "jobs", consumer="late", as_program=True) == ["7"]
    assert payloads(libkestrel, folder, "jobs", consumer="", as_program=True) == ["1", "2"]
    assert payloads(libkestrel, folder, "jobs") == ["1", "2", "5", "7"]
    assert payloads(libkestrel, folder, "jobs", as_program=True) == ["1", "2"]


def test_without_consumers_the_default_reader_stands_before_the_first_id(tmp_path):
    libkestrel.write(tmp_path / "q", [Entry(b"x", 5), Entry(b"y", 6)], "jobs")
    assert (tmp_path / "q/jobs.read.").read_bytes() == checkpoint(4)


def test_a_gap_between_two_segments_is_not_written_and_a_repair_closes_gaps(tmp_path):
    entries = [Entry(b"x" * 50, index, 0) for index in (1, 2, 5)]
    with pytest.raises(Unsafe, match="cannot write id 5 after id 2 into the next segment"):
        libkestrel.write(tmp_path / "no", entries, "jobs", journal_bytes=170)
    assert not (tmp_path / "no").exists()
    libkestrel.write(tmp_path / "renumbered", entries, "jobs", journal_bytes=170, first=1)
    libkestrel.write(tmp_path / "in_one_segment", entries, "jobs")
    readers = {"jobs.read.a": checkpoint(1, 5), "jobs.read.b": checkpoint(5)}
    done = libkestrel.repair(place(tmp_path / "q", GAP | readers))
    assert [(e.index, e.payload) for e in libkestrel.read(done.path)] == [(1, b"1"), (2, b"2"), (3, b"5"), (4, b"7")]
    assert libkestrel.state(done.path).consumers == {"a": (1, (3,)), "b": (3, ())}
    assert payloads(libkestrel, done.path, as_program=True) == ["1", "2", "5", "7"]


@pytest.mark.parametrize(
    ("ids", "wanted"),
    [
        ((9, 2, 3, 4), {"a": "023", "b": "0", "c": "0"}),  # the first id of a segment has a bit too many
        ((0, 1, 2, 3), {"a": "3", "b": "", "c": ""}),
        ((-5, 1, 9, 3), {"a": "23", "b": "2", "c": "2"}),
        ((1, 1, 1, 1), {"a": "", "b": "", "c": ""}),
        ((1, (1 << 63) - 1, 2, 3), {"a": "13", "b": "1", "c": "1"}),
        (((1 << 63) - 1, (1 << 63) - 1, 5, 5), {"a": "0123", "b": "0123", "c": "01"}),
    ],
)
def test_a_repair_numbers_anew_what_does_not_ascend_and_each_reader_goes_on_with_what_it_wanted(tmp_path, ids, wanted):
    """Nothing that a read delivers is dropped: a damaged number is no reason to lose the item."""
    records = [put(index, f"{number}") for number, index in enumerate(ids)]
    readers = {"jobs.read.a": checkpoint(1, 2), "jobs.read.b": checkpoint(4)}
    folder = place(tmp_path / "q", {"jobs.1": segment(*records), "jobs.read.c": checkpoint(5)} | readers)
    found = libkestrel.state(folder)
    assert (found.first, found.last) == (min(ids), max(ids))
    expected = {name: payloads(libkestrel, folder, consumer=name) for name in "abc"}
    done = libkestrel.repair(folder)
    assert payloads(libkestrel, done.path) == ["0", "1", "2", "3"]
    assert {name: payloads(libkestrel, done.path, consumer=name) for name in "abc"} == expected
    assert libkestrel.verify(done.path) == []
    assert {name: "".join(each) for name, each in expected.items()} == wanted


def test_a_repair_makes_segments_that_hold_the_largest_item(tmp_path):
    """16 MiB is the limit of an item, and more than a segment of the default size has room for."""
    large = struct.pack("<Biiqq", 0x86, 16 << 20, 0, 1, 5) + bytes(16 << 20)
    folder = place(tmp_path / "q", {"jobs.1": segment(large, put(2, "b")) + b"\x86"})
    done = libkestrel.repair(folder)
    assert [(e.index, len(e.payload)) for e in libkestrel.read(done.path)] == [(1, 16 << 20), (2, 1)]


def test_the_program_has_no_nameless_reader_beside_others(tmp_path):
    files = {"jobs.1": segment(put(1), put(2)), "jobs.read.": checkpoint(1), "jobs.read.r": checkpoint(2)}
    folder = place(tmp_path, files)
    assert libkestrel.state(folder).consumers == {"": (1, ()), "r": (2, ())}
    assert libkestrel.state(folder, as_program=True).consumers == {"r": (2, ())}
    (folder / "jobs.read.r").write_bytes(b"????")  # a broken one does not count
    assert libkestrel.state(folder, as_program=True).consumers == {"": (1, ()), "r": (2, ())}


# ------------------------------------------------------------------------------------------ sej
def message(offset, key="", value="", when=1, kind=0):
    """u64 offset, i64 ns, u8 type, i8 key size, key, i32 value size, value, i32 size of all of it."""
    head = struct.pack(">QqBb", offset, when, kind, len(key)) + key.encode()
    return head + struct.pack(">i", len(value)) + value.encode() + struct.pack(">i", 26 + len(key) + len(value))


def journal(first, *messages):
    return {f"jnl/{first:016x}.jnl": b"".join(messages)}


def test_a_sej_segment_cut_at_any_byte_holds_its_whole_messages(tmp_path):
    messages = [message(0, "k", "one"), message(1), message(2, "", "three")]
    data = b"".join(messages)
    ends = [sum(map(len, messages[:n])) for n in range(4)]
    for cut in range(len(data) + 1):
        folder = place(tmp_path / str(cut), journal(0, data[:cut]))
        whole = sum(end <= cut for end in ends[1:])
        assert payloads(sej, folder) == ["one", "", "three"][:whole], cut
        found = [problem.position for problem in sej.state(folder).problems]
        assert found == ([] if cut in ends else [max(end for end in ends if end <= cut)]), cut


@pytest.mark.parametrize(
    ("rest", "delivered"),
    [
        (b"\xff" * 17, ["a", "b"]),  # a head that is not whole, and all messages came: the next segment goes on
        (message(9, "key", "whatever")[:-1], ["a", "b"]),  # its offset is looked at only when it is whole
        (message(9, "key", "whatever"), ["a"]),
        (struct.pack(">QqBb", 1, 1, 0, -1), ["a"]),  # a negative size is damage at once
    ],
)
def test_bytes_that_are_left_over_at_the_end_of_a_segment(tmp_path, rest, delivered):
    """What the real Scanner does was seen with it; by the document what is whole is delivered."""
    folder = place(tmp_path, journal(0, message(0, "", "a"), rest) | journal(1, message(1, "", "b")))
    assert payloads(sej, folder) == ["a", "b"]
    assert len(sej.state(folder).problems) == 1
    assert payloads(sej, folder, as_program=True) == delivered


def test_the_scanner_gives_the_key_of_a_torn_message_to_the_next_one_without_a_key(tmp_path):
    torn = message(1, "torn", "whatever")[:-1]
    folder = place(tmp_path, journal(0, message(0, "k", "a"), torn) | journal(1, message(1, "", "b")))
    assert [entry.key for entry in sej.read(folder)] == [b"k", b""]
    assert [entry.key for entry in sej.read(folder, as_program=True)] == [b"k", b"torn"]


def test_of_many_messages_those_without_a_key_have_none_and_reading_begins_where_it_is_told_to(tmp_path):
    """Hundreds of them, so that most are read many at once, and a few one by one."""
    keys = ["" if number % 3 else f"k{number}" for number in range(300)]
    messages = [message(number, key, f"v{number}" * (number % 5)) for number, key in enumerate(keys)]
    folder = place(tmp_path, journal(0, *messages[:200]) | journal(200, *messages[200:]))
    assert [entry.key.decode() for entry in sej.read(folder)] == keys
    theirs = [keys[number - number % 3] for number in range(300)]
    assert [entry.key.decode() for entry in sej.read(folder, as_program=True)] == theirs
    for start in (0, 1, 99, 198, 199, 200, 201, 250, 299, 300, 1000):
        assert [entry.index for entry in sej.read(folder, start=start)] == list(range(start, 300))


@pytest.mark.parametrize("number", [3, 250])
@pytest.mark.parametrize("offset", [2, 4, 1 << 63])
def test_a_message_with_another_offset_ends_its_segment(tmp_path, number, offset):
    messages = [message(each, "", "v") for each in range(300)]
    messages[number] = message(offset, "", "v")
    folder = place(tmp_path, journal(0, *messages) | journal(300, message(300)))
    assert [entry.index for entry in sej.read(folder)] == [*range(number), 300]
    assert [entry.index for entry in sej.read(folder, as_program=True)] == [*range(number)]


@pytest.mark.parametrize("size", [-1, 0, 26, 28, 1 << 30])
@pytest.mark.parametrize("key", ["", "k"])
def test_a_message_with_another_size_at_its_end_ends_its_segment(tmp_path, size, key):
    messages = [message(each, key, "v" * 9) for each in range(300)]
    messages[100] = messages[100][:-4] + struct.pack(">i", size)
    folder = place(tmp_path, journal(0, *messages))
    assert [entry.index for entry in sej.read(folder)] == [*range(100)]
    assert "a size field" in sej.state(folder).problems[0].reason


@pytest.mark.parametrize("size", [-1, -128])
def test_a_negative_key_size_ends_a_segment_also_where_the_rest_would_fit_it(tmp_path, size):
    """Without its key byte it would be a whole message, of no key and no value."""
    rest = struct.pack(">QqBbii", 1, 1, 0, size, 0, 26) + bytes(300)
    folder = place(tmp_path, journal(0, message(0), rest))
    assert [entry.index for entry in sej.read(folder)] == [0]
    assert f"a key size of {size}" in sej.state(folder).problems[0].reason


def test_the_scanner_stops_where_the_next_segment_is_not_the_one_it_wants(tmp_path):
    """The messages are whole on both sides: behind 1 it looks for 2, and nobody has it."""
    folder = place(tmp_path, journal(0, message(0), message(1)) | journal(5, message(5)))
    assert [entry.index for entry in sej.read(folder)] == [0, 1, 5]
    assert [entry.index for entry in sej.read(folder, as_program=True)] == [0, 1]


def test_the_scanner_does_not_go_back_to_a_segment_that_begins_before_what_it_wants(tmp_path):
    folder = place(tmp_path, journal(0, message(0), message(1), b"torn") | journal(1, message(1), message(2)))
    assert [entry.index for entry in sej.read(folder)] == [0, 1, 2]
    assert [entry.index for entry in sej.read(folder, as_program=True)] == [0, 1]


def test_a_message_missing_at_the_end_of_a_segment_stops_the_scanner(tmp_path):
    torn = message(1, "", "lost")[:-1]
    folder = place(tmp_path, journal(0, message(0, "", "a"), torn) | journal(2, message(2, "", "b")))
    assert payloads(sej, folder) == ["a", "b"]
    assert payloads(sej, folder, as_program=True) == ["a"]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9])
def test_an_offset_file_is_eight_bytes_or_says_nothing(tmp_path, size):
    content = struct.pack(">QB", 1, 0)[:size]
    folder = place(tmp_path, journal(0, message(0, "", "a"), message(1, "", "b")) | {"ofs/r.ofs": content})
    found = sej.state(folder)
    assert found.consumers == {"r": (1 if size == 8 else None, ())}
    assert len(found.problems) == (size not in (0, 8))
    if size == 0:
        assert payloads(sej, folder, consumer="r") == ["a", "b"]
    elif size == 8:
        assert payloads(sej, folder, consumer="r") == ["b"]
    else:
        with pytest.raises(Corrupt):
            list(sej.read(folder, consumer="r"))


def test_segment_names_are_hexadecimal_in_any_case_and_others_are_no_segments(tmp_path):
    files = {"jnl/A.jnl": message(10, "", "a"), "jnl/b.jnl": message(11, "", "b"), "jnl/x.jnl": b"", "jnl/b.tmp": b"?"}
    assert payloads(sej, place(tmp_path, files)) == ["a", "b"]
    last = (1 << 64) - 1
    assert [entry.index for entry in sej.read(place(tmp_path / "end", journal(last, message(last))))] == [last]


@pytest.mark.parametrize("bit", range(11))
def test_shards_of_every_number_of_bits(tmp_path, bit):
    """`prefix.<bit hex>.<index, three hex digits>`; no suffix with bit 0."""
    index = (1 << bit) - 1
    name = f"p.{bit:x}.{index:03x}" if bit else "p"
    formats.write(tmp_path / "s", [Entry(b"v", None, 1)], "sej", shard_bit=bit, prefix="p", shard_hash=lambda _: 0xFFFF)
    assert [path.name for path in (tmp_path / "s").iterdir()] == [name]
    assert [entry.extra["dir"] for entry in formats.read(tmp_path / "s", "sej")] == [name]


def test_times_of_sej_are_signed(tmp_path):
    folder = place(tmp_path, journal(0, message(0, when=-1), message(1, when=0), message(2, when=(1 << 63) - 1)))
    assert [entry.time_ns for entry in sej.read(folder)] == [-1, 0, (1 << 63) - 1]


# ------------------------------------------------------------------------------------------ QewQew
def chunk(*elements, following=0, head=None, tail=None, size=None):
    """i32 head, i32 tail, u16 next; then u16 length and data each."""
    data = b"".join(struct.pack(">H", len(each)) + each.encode() for each in elements)
    head, tail = 10 if head is None else head, 10 + len(data) if tail is None else tail
    return (struct.pack(">iiH", head, tail, following) + data).ljust(size or 0, b"\xee")


def queue(folder, first, **chunks):
    files = {f"q.{name[1:]}": content for name, content in chunks.items()}
    return place(folder, {"q": struct.pack(">H", first)} | files) / "q"


def test_a_chunk_that_was_drained_leads_on(tmp_path):
    assert payloads(qewqew, queue(tmp_path, 1, c1=chunk("a", following=9, head=13), c9=chunk("b"))) == ["b"]


def test_chunk_ids_are_followed_and_not_sorted(tmp_path):
    chunks = {"c65534": chunk("a", following=1), "c1": chunk("b", following=7), "c7": chunk("c")}
    assert payloads(qewqew, queue(tmp_path, 65534, **chunks)) == ["a", "b", "c"]


@pytest.mark.parametrize(("content", "left"), [(b"", []), (b"\x00", []), (b"\x01", []), (b"\x00\x01\xff", ["a"])])
def test_a_header_of_another_size_is_cut_or_extended_as_the_program_does_it(tmp_path, content, left):
    queue(tmp_path, 1, c1=chunk("a"))
    (tmp_path / "q").write_bytes(content)
    assert payloads(qewqew, tmp_path / "q") == left
    assert any(problem.file == "q" for problem in qewqew.state(tmp_path / "q").problems)


def test_a_chunk_cut_at_any_byte_holds_its_whole_elements(tmp_path):
    data = chunk("one", "", "three", following=2)
    ends = [10, 15, 17, 24]
    for cut in range(10, len(data) + 1):
        path = queue(tmp_path / str(cut), 1, c1=data[:cut], c2=chunk("next"))
        whole = sum(end <= cut for end in ends[1:])
        assert payloads(qewqew, path) == [*["one", "", "three"][:whole], "next"], cut
        assert bool(qewqew.state(path).problems) == (cut < len(data)), cut


@pytest.mark.parametrize(("head", "tail"), [(-1, 13), (13, 10), (10, -1), (20, 13), (0, 0)])
def test_pointers_that_make_no_sense_cost_their_own_chunk(tmp_path, head, tail):
    path = queue(tmp_path, 1, c1=chunk("a", following=2, head=head, tail=tail, size=40), c2=chunk("b"))
    assert payloads(qewqew, path) == ["b"]
    assert [problem.file for problem in qewqew.state(path).problems] == ["q.1"]

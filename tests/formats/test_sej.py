"""sej: what the real program wrote is read, what is written is what it would write, damage is named."""

import pytest
from format_fixtures import Case, cases, place, tree

from shmq import formats
from shmq.errors import BadFormat, Corrupt, NotFound, TooLarge, Unsafe
from shmq.formats import Entry, sej

# Derived by hand from the format's page; every integer is big-endian.
#   00 00 00 00 00 00 00 07    u64 offset 7
#   00 00 00 00 00 00 03 e8    i64 timestamp 1000 ns
#   ff                         u8 type 255 (the document says int8, the program uses a byte)
#   02                         i8 key size 2
#   6b 79                      "ky"
#   00 00 00 03                i32 value size 3
#   76 61 6c                   "val"
#   00 00 00 1f                i32 total size 26 + 2 + 3 = 31
SEVEN = bytes.fromhex("0000000000000007 00000000000003e8 ff 02 6b79 00000003 76616c 0000001f")
#   offset 8, Go's zero time (-2^63), type 0, no key, no value, total 26
EIGHT = bytes.fromhex("0000000000000008 8000000000000000 00 00 00000000 0000001a")
SEGMENT = "jnl/0000000000000007.jnl"

ENTRY_7 = Entry(b"val", 7, 1000, None, b"ky", 255, None, {"segment": "0000000000000007.jnl"})
ENTRY_8 = Entry(b"", 8, sej.ZERO_TIME, None, b"", 0, None, {"segment": "0000000000000007.jnl"})


def journal(folder, data=SEVEN + EIGHT, **files):
    return place(folder, {SEGMENT: data, "ofs/r.ofs": bytes(7) + b"\x08"} | files)


def message(offset, value=b"v"):
    return sej.message(offset, Entry(value, None, offset))


# ------------------------------------------------------------------------------------------ by hand


def test_a_segment_and_an_offset_derived_by_hand_are_read(tmp_path):
    assert list(sej.read(journal(tmp_path))) == [ENTRY_7, ENTRY_8]
    state = sej.state(tmp_path)
    assert state.consumers == {"r": (8, ())}
    assert (state.problems, state.messages, state.first, state.last) == ([], 2, 7, 8)
    assert [entry.index for entry in sej.read(tmp_path, consumer="r")] == [8]
    assert [entry.index for entry in sej.read(tmp_path, start=8)] == [8]


def test_they_are_written_byte_for_byte(tmp_path):
    sej.write(tmp_path / "q", [ENTRY_7, ENTRY_8], consumers={"r": (8, ()), "never": (None, ())})
    expected = {SEGMENT: SEVEN + EIGHT, "ofs/r.ofs": bytes(7) + b"\x08", "ofs/never.ofs": b""}
    assert expected == tree(tmp_path / "q")


def test_an_empty_key_is_empty_and_the_programs_is_the_one_before_it(tmp_path):
    """The real Scanner reuses one message and leaves its key alone when the new one has none."""
    journal(tmp_path)
    assert [entry.key for entry in sej.read(tmp_path)] == [b"ky", b""]
    assert [entry.key for entry in sej.read(tmp_path, as_program=True)] == [b"ky", b"ky"]


@pytest.mark.parametrize("long", [False, True], ids=["at_the_end", "in_the_middle"])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (message(9)[:-1], "ends inside"),
        (message(9)[:17], "ends inside"),
        (message(9)[:20], "ends inside"),
        (bytes(64), "offset 0 where 9"),
        (message(9)[:17] + b"\x80" + message(9)[18:], "key size of -128"),
        (message(9)[:18] + b"\xff\xff\xff\xff" + message(9)[22:], "value size of -1"),
        (message(9)[:18] + b"\x7f\xff\xff\xff" + message(9)[22:], "ends inside"),
        (message(9)[:-1] + b"\x00", "size field of 0"),
        (message(10), "offset 10 where 9"),
    ],
)
def test_damage_ends_a_segment_and_the_next_one_goes_on(tmp_path, bad, reason, long):
    """
    The real Scanner stops for good at a break that is not at the end; the messages behind it are whole, so they are
    delivered, and what is missing is reported. With many bytes behind it, the loop that reads many at once must see it.
    """
    if long:
        if reason == "ends inside":
            pytest.skip("what ends inside has nothing behind it")
        bad += bytes(400)
    journal(tmp_path, SEVEN + EIGHT + bad)
    assert [entry.index for entry in sej.read(tmp_path)] == [7, 8]
    (problem,) = sej.state(tmp_path).problems
    assert (SEGMENT, len(SEVEN + EIGHT)) == problem[:2]
    assert reason in problem.reason
    place(tmp_path, {"jnl/000000000000000a.jnl": message(10) + message(11)})
    assert [entry.index for entry in sej.read(tmp_path)] == [7, 8, 10, 11]
    assert [entry.index for entry in sej.read(tmp_path, as_program=True)] == [7, 8]
    assert "9 is next" in sej.state(tmp_path).problems[-1].reason
    with pytest.raises(Corrupt, match="is whole"):
        list(sej.read(tmp_path, strict=True))


def test_an_empty_segment_in_the_middle_is_passed(tmp_path):
    """The real Scanner opens it again and again, for ever."""
    journal(tmp_path, **{"jnl/0000000000000009.jnl": b"", "jnl/000000000000000c.jnl": message(12)})
    assert [entry.index for entry in sej.read(tmp_path)] == [7, 8, 12]
    assert [
        p.reason[: len(t)]
        for p, t in zip(sej.state(tmp_path).problems, ["an empty segment", "begins at offset 12"], strict=True)
    ] == ["an empty segment", "begins at offset 12"]


def test_what_two_segments_both_have_is_delivered_once(tmp_path):
    journal(tmp_path, **{"jnl/0000000000000008.jnl": message(8) + message(9)})
    assert [entry.index for entry in sej.read(tmp_path)] == [7, 8, 9]


def test_shards_are_merged_by_time_and_keep_their_own_order(tmp_path):
    place(
        tmp_path,
        {
            "o.1.000/jnl/0000000000000000.jnl": sej.message(0, Entry(b"a", None, 30))
            + sej.message(1, Entry(b"b", None, 10))
        },
    )
    place(
        tmp_path,
        {
            "o.1.001/jnl/0000000000000000.jnl": sej.message(0, Entry(b"c", None, 20))
            + sej.message(1, Entry(b"d", None, 40))
        },
    )
    assert [entry.payload for entry in sej.read(tmp_path)] == [b"c", b"a", b"b", b"d"]
    assert [entry.payload for entry in sej.read(tmp_path, "o.1.000")] == [b"a", b"b"]
    assert {"o.1.000", "o.1.001"} == {entry.extra["dir"] for entry in sej.read(tmp_path, "o")}
    with pytest.raises(NotFound):
        sej.read(tmp_path, "other")


def test_an_offset_of_a_wrong_length_is_a_problem_and_no_offset(tmp_path):
    journal(tmp_path, **{"ofs/r.ofs": b"\0\0\0"})
    assert sej.state(tmp_path).consumers == {"r": (None, ())}
    assert [problem.file for problem in sej.state(tmp_path).problems] == ["ofs/r.ofs"]
    with pytest.raises(Corrupt, match="any offset"):
        sej.read(tmp_path, consumer="r")


def test_readers_outside_of_the_journal_are_found(tmp_path):
    journal(tmp_path, **{"ofs/low.ofs": bytes(8), "ofs/high.ofs": bytes(7) + b"\x0a", "ofs/x.ofs.tmp": b""})
    assert sorted(p.file for p in sej.verify(tmp_path)) == ["ofs/high.ofs", "ofs/low.ofs", "ofs/x.ofs.tmp"]


def test_records_on_the_edge_of_a_window_are_whole(tmp_path):
    sizes = [0, 1, 100_000, 262_144, 262_000, 700_000, 33, 8]
    entries = [Entry(bytes([n]) * size, None, n, key=b"k" * (n % 128)) for n, size in enumerate(sizes * 5)]
    sej.write(tmp_path / "q", entries)
    assert [(e.payload, e.key) for e in entries] == [(e.payload, e.key) for e in sej.read(tmp_path / "q")]


def test_a_payload_over_the_callers_limit_is_refused_by_name(tmp_path):
    journal(tmp_path)
    with pytest.raises(TooLarge, match="max_payload"):
        list(sej.read(tmp_path, max_payload=2))


# ------------------------------------------------------------------------------------------ writing


def test_a_segment_is_closed_once_it_is_long_enough(tmp_path):
    """After each append: if the file is at least SegmentSize, a new one begins, which may stay empty."""
    sej.write(tmp_path / "q", [Entry(b"x" * 9, None, 0)] * 4, segment_bytes=70)
    sizes = {name: len(data) for name, data in tree(tmp_path / "q").items()}
    assert sizes == {"jnl/0000000000000000.jnl": 70, "jnl/0000000000000002.jnl": 70, "jnl/0000000000000004.jnl": 0}


@pytest.mark.parametrize(
    ("prefix", "bit", "index", "name"),
    [
        ("orders", 2, 3, "orders.2.003"),
        ("", 1, 0, "1.000"),
        ("p", 10, 1023, "p.a.3ff"),
        ("solo", 0, 0, "solo"),
        ("", 0, 0, ""),
    ],
)
def test_shards_are_named_as_the_document_says(prefix, bit, index, name):
    assert name == sej.shard_directory(prefix, bit, index)


@pytest.mark.parametrize(("prefix", "bit", "index"), [("a/b", 1, 0), ("a.b", 1, 0), ("", 11, 0), ("", 1, 2)])
def test_impossible_shards_are_refused(prefix, bit, index):
    with pytest.raises(BadFormat):
        sej.shard_directory(prefix, bit, index)


@pytest.mark.parametrize(
    ("entries", "options", "error"),
    [
        ([Entry(b"x", key=b"k" * 128)], {}, TooLarge),
        ([Entry(b"x", type=256)], {}, TooLarge),
        ([Entry(b"x", time_ns=1 << 63)], {}, TooLarge),
        ([Entry(b"x", expires_ns=1)], {}, Unsafe),
        ([Entry(b"x", attempts=1)], {}, Unsafe),
        ([Entry(b"x", 3), Entry(b"x", 5)], {}, Unsafe),
        ([Entry(b"x")], {"consumers": {"r": (1, (3,))}}, Unsafe),
        ([Entry(b"x")], {"consumers": {"r": (-1, ())}}, TooLarge),
        ([Entry(b"x", extra={"dir": "../x"})], {"by_dir": True}, BadFormat),
        ([Entry(b"x")], {"client": "../x", "queue": "q"}, BadFormat),
        ([Entry(b"x")], {"queue": "a/b"}, BadFormat),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path, entries, options, error):
    with pytest.raises(error):
        sej.write(tmp_path / "q", entries, **options)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_journal_is_never_replaced(tmp_path):
    before = tree(journal(tmp_path))
    with pytest.raises(Unsafe, match="nothing was changed"):
        sej.write(tmp_path, [ENTRY_7])
    assert before == tree(tmp_path)


def test_hub_directories_are_named_by_client(tmp_path):
    sej.write(tmp_path / "hub", [Entry(b"x")], "events", client="client-a")
    assert sej.directories(tmp_path / "hub") == ["client-a.events"]


def test_a_repair_closes_holes_and_moves_the_readers_along(tmp_path):
    """
    The format has no holes. Offset 9 is lost; 10 and 11 become 9 and 10, and the reader that wanted 11 wants 10.
    """
    later = {"jnl/000000000000000a.jnl": message(10, b"ten") + message(11, b"eleven")}
    folder = journal(tmp_path / "q", SEVEN + EIGHT + b"torn", **later, **{"ofs/late.ofs": bytes(7) + b"\x0b"})
    before = tree(folder)
    done = sej.repair(folder)
    assert before == tree(folder)
    assert sej.verify(done.path) == []
    assert [entry.index for entry in sej.read(done.path)] == [7, 8, 9, 10]
    assert sej.state(done.path).consumers == {"r": (8, ()), "late": (10, ())}
    assert [entry.payload for entry in sej.read(done.path, consumer="late")] == [b"eleven"]
    done = sej.repair(folder, in_place=True)
    assert sej.verify(folder) == []
    assert before == tree(done.kept)


# ------------------------------------------------------------------------------------------ fixtures


def item(expected):
    return (
        expected["offset"],
        expected["timestamp_ns"],
        expected["type"],
        bytes.fromhex(expected["key_hex"]),
        bytes.fromhex(expected["value_hex"]),
    )


def fields(entry):
    return entry.index, entry.time_ns, entry.type, entry.key, entry.payload


@pytest.mark.parametrize("path", cases("sej"))
def test_messages_and_offsets_are_what_the_real_program_wrote(path):
    it = Case(path)
    if "items" in it.expected:
        entries = list(sej.read(it.path))
        assert list(map(item, it["items"])) == list(map(fields, entries))
        assert [i.get("dir") for i in it["items"]] == [entry.extra.get("dir") for entry in entries]
    for name, items in it.get("dirs", {}).items():
        assert list(map(item, items)) == list(map(fields, sej.read(it.path, name)))
    offsets = {name: (value, ()) for name, value in it.get("offsets", {}).items()}
    assert offsets == sej.state(it.path).consumers


@pytest.mark.parametrize("path", cases("sej", lambda it: "real_scanner_from_0" in it.get("observed", {})))
def test_as_program_delivers_what_the_real_scanner_delivered(path):
    it = Case(path)
    keys = [bytes.fromhex(key) for key in it["observed"]["real_scanner_from_0"]["scanner_keys_hex_as_returned"] or []]
    assert keys == [entry.key for entry in sej.read(it.path, as_program=True)]


def left_by_one_writer(it):
    """Whether its bytes are what one writer leaves: not edited, closed, of one segment size."""
    one_size = isinstance(it.get("segment_size", 0), int) and "dirs" not in it.expected
    return it["kind"] == "real" and it.name != "killed_writer" and one_size


@pytest.mark.parametrize("path", cases("sej", left_by_one_writer))
def test_writing_gives_the_real_programs_bytes(path, tmp_path):
    it = Case(path)
    size = it.get("segment_size", sej.SEGMENT_BYTES)
    options = {} if "shard_bit" not in it.expected else {"shard_bit": it["shard_bit"], "prefix": it["prefix"]}
    sej.write(tmp_path / "q", sej.read(it.path), None, sej.state(it.path).consumers, segment_bytes=size, **options)
    assert tree(it.path) == tree(tmp_path / "q")


@pytest.mark.parametrize("path", cases("sej"))
def test_a_round_trip_keeps_everything(path, tmp_path):
    it = Case(path)
    roots = sej.directories(it.path) != [""]
    found = sej.state(it.path)
    gaps = any("is next" in problem.reason and "begins" in problem.reason for problem in found.problems)
    options = {"by_dir": roots, "first": found.first if gaps else None}
    formats.write(tmp_path / "q", sej.read(it.path), "sej", None, found.consumers, **options)
    again = list(formats.read(tmp_path / "q"))
    assert [fields(e)[1:] for e in sej.read(it.path)] == [fields(e)[1:] for e in again]
    assert found.consumers == sej.state(tmp_path / "q").consumers
    assert sej.state(tmp_path / "q").problems == []

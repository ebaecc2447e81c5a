"""libkestrel: what the real program wrote is read, what is written is what it would write, damage is named."""

import struct

import pytest
from format_fixtures import Case, case, cases, place, tree

from shmq import formats
from shmq.errors import BadFormat, Corrupt, NotFound, TooLarge, Unsafe
from shmq.formats import Entry, libkestrel

MS = 1_000_000

# Derived by hand from the format's page.
#   27 64 26 03                      writer magic
#   86                               command 8 (PUT), 6 header words = 24 bytes
#   02 00 00 00                      i32 data size 2
#   01 00 00 00                      i32 error count 1
#   05 00 00 00 00 00 00 00          i64 id 5
#   e8 03 00 00 00 00 00 00          i64 add time 1000 ms
#   68 69                            "hi"
PUT_5 = bytes.fromhex("86 02000000 01000000 0500000000000000 e803000000000000 6869")
#   88                               PUT with 8 header words: an expire time follows
#   00 00 00 00  00 00 00 00         no data, no errors
#   06 ..                            id 6
#   d0 07 ..                         added at 2000 ms
#   00 ..                            expires at 0: present, so it is "at the epoch" and not "never"
PUT_6 = bytes.fromhex("88 00000000 00000000 0600000000000000 d007000000000000 0000000000000000")
SEGMENT = bytes.fromhex("27642603") + PUT_5 + PUT_6
#   26 3c 26 03                      checkpoint magic
#   02  04 ..                        command 0 (READ_HEAD), 2 words: id 4
#   91  08 00 00 00                  command 9 (READ_DONE), 1 word: 8 bytes of data, which is one id
#   06 ..                            id 6
CHECKPOINT = bytes.fromhex("263c2603 02 0400000000000000 91 08000000 0600000000000000")

HI = Entry(b"hi", 5, 1000 * MS, None, None, None, 1, {"segment": "jobs.100"})
EMPTY = Entry(b"", 6, 2000 * MS, 0, None, None, 0, {"segment": "jobs.100"})


def queue(folder, segment=SEGMENT, **files):
    return place(folder, {"jobs.100": segment, "jobs.read.": CHECKPOINT} | files)


# ------------------------------------------------------------------------------------------ by hand


def test_a_segment_and_a_checkpoint_derived_by_hand_are_read(tmp_path):
    assert list(libkestrel.read(queue(tmp_path), "jobs")) == [HI, EMPTY]
    state = libkestrel.state(tmp_path)
    assert state.consumers == {"": (4, (6,))}
    assert state.problems == []
    assert (state.messages, state.first, state.last) == (2, 5, 6)


def test_they_are_written_byte_for_byte(tmp_path):
    libkestrel.write(tmp_path / "q", [HI, EMPTY], "jobs", {"": (4, (6,))}, name_ms=100)
    assert tree(tmp_path / "q") == {"jobs.100": SEGMENT, "jobs.read.": CHECKPOINT}


def test_a_reader_sees_what_is_above_its_head_and_not_done(tmp_path):
    assert [entry.index for entry in libkestrel.read(queue(tmp_path), consumer="")] == [5]


def test_reading_can_begin_at_an_id(tmp_path):
    assert [entry.index for entry in libkestrel.read(queue(tmp_path), start=6)] == [6]
    assert [entry.index for entry in formats.read(tmp_path / "jobs.100", start=6)] == [6]


def test_the_program_delivers_confirmed_items_again(tmp_path):
    """
    READ_DONE is written by the real program and ignored when it reads after a restart, so confirmed items come
    back. The document says that these ids are removed; it is followed unless asked otherwise.
    """
    assert [entry.index for entry in libkestrel.read(queue(tmp_path), consumer="", as_program=True)] == [5, 6]


@pytest.mark.parametrize("files", [{"jobs.read.": CHECKPOINT[:9]}, {"jobs.read.": b"????"}])
def test_a_reader_whose_checkpoint_is_broken_starts_at_the_oldest_item(tmp_path, files):
    """
    The real program drops a broken checkpoint and starts that reader at the newest item, which skips everything
    unread, against its own words "always possibly replay instead of losing".
    """
    queue(tmp_path, **files)
    assert [entry.index for entry in libkestrel.read(tmp_path, consumer="")] == [5, 6]
    assert list(libkestrel.read(tmp_path, consumer="", as_program=True)) == []
    state = libkestrel.state(tmp_path)
    assert state.consumers == {"": (4, ())}
    assert [problem.file for problem in state.problems] == ["jobs.read."]
    assert libkestrel.state(tmp_path, as_program=True).consumers == {"": (6, ())}


def test_a_zero_byte_ends_the_data(tmp_path):
    """Segments are allocated full of zeros, and a put's command byte is written last: zero is the live end."""
    torn = b"\0" + PUT_6[1:]
    queue(tmp_path, SEGMENT + torn + bytes(100))
    assert [entry.index for entry in libkestrel.read(tmp_path)] == [5, 6]
    assert libkestrel.state(tmp_path).problems == []
    (hidden,) = libkestrel.verify(tmp_path)
    assert "behind the end" in hidden.reason


@pytest.mark.parametrize("long", [False, True], ids=["at_the_end", "in_the_middle"])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (PUT_5[:-1], "truncated entry"),
        (PUT_5[:12], "truncated header"),
        (bytes.fromhex("86 01000001 00000000") + bytes(16), "16777217 bytes"),  # 16 MiB + 1
        (bytes.fromhex("86 ffffffff 00000000") + bytes(16), "-1 bytes"),
        (bytes.fromhex("80") + bytes(40), "without a header"),
        (bytes.fromhex("b0") + bytes(40), "without a header"),
        (bytes.fromhex("b1 e8030000") + bytes(40), "truncated entry"),
        (bytes.fromhex("b1 01000001") + bytes(40), "16777217 bytes"),
        (bytes.fromhex("b1 f0ffffff") + bytes(40), "-16 bytes"),  # an unknown command that would step back
        (bytes.fromhex("91 07000000") + bytes(40), "not whole ids"),
        (bytes.fromhex("87 00000000 00000000") + bytes(20), "7 words"),
    ],
)
def test_damage_ends_a_segment_and_the_next_one_goes_on(tmp_path, bad, reason, long):
    """With many bytes behind it, the loop that reads many at once must see it."""
    if long:
        if "truncated" in reason:
            pytest.skip("what is cut off has nothing behind it")
        bad += bytes(400)
    later = bytes.fromhex("27642603") + PUT_6.replace(b"\x06", b"\x09", 1)
    queue(tmp_path, SEGMENT + bad, **{"jobs.101": later})
    assert [entry.index for entry in libkestrel.read(tmp_path)] == [5, 6, 9]
    (problem,) = libkestrel.state(tmp_path).problems
    assert ("jobs.100", len(SEGMENT)) == problem[:2]
    assert reason in problem.reason
    with pytest.raises(Corrupt, match="what came before is whole"):
        list(libkestrel.read(tmp_path, strict=True))


def test_the_program_takes_the_words_of_an_odd_header_for_payload(tmp_path):
    """The document's PUT has 6 or 8 words. The program does not check: 7 words are 6 and an expiry's worth of bytes."""
    odd = bytes.fromhex("87 02000000 00000000 0700000000000000 0000000000000000 0100000000000000 6162")
    queue(tmp_path, SEGMENT + odd)
    assert [entry.index for entry in libkestrel.read(tmp_path)] == [5, 6]
    *_, last = libkestrel.read(tmp_path, as_program=True)
    assert (last.payload, last.index, last.expires_ns) == (b"ab", 7, 1 * MS)


def test_unknown_commands_are_skipped_by_their_own_length(tmp_path):
    unknown = bytes.fromhex("32 0000000000000000") + bytes.fromhex("b1 03000000 616263") + bytes.fromhex("70")
    queue(tmp_path, SEGMENT[:4] + unknown + PUT_5 + unknown + PUT_6 + unknown)
    assert [entry.index for entry in libkestrel.read(tmp_path)] == [5, 6]
    assert libkestrel.state(tmp_path).problems == []
    commands = [
        problem.reason.partition(",")[0].removeprefix("a record of ") for problem in libkestrel.verify(tmp_path)
    ]
    assert commands == ["the unknown command 3", "the unknown command 11", "the unknown command 7"] * 3


def test_records_on_the_edge_of_a_window_are_whole(tmp_path):
    sizes = [0, 1, 100_000, 262_144, 262_143, 700_000, 33, 8]
    entries = [Entry(bytes([n]) * size, n + 1, n * MS) for n, size in enumerate(sizes * 5)]
    libkestrel.write(tmp_path / "q", (e._replace(index=i + 1) for i, e in enumerate(entries)), "jobs")
    assert [entry.payload for entry in entries] == [entry.payload for entry in libkestrel.read(tmp_path / "q")]


# ------------------------------------------------------------------------------------------ writing


def test_segments_roll_before_the_put_that_does_not_fit(tmp_path):
    """Rotate before a put if position + record > journalSize; 4 + 2 * 35 = 74 fits 74."""
    entries = [Entry(b"x" * 10, None, 0)] * 5
    libkestrel.write(tmp_path / "q", entries, "jobs", journal_bytes=74, name_ms=7)
    sizes = {name: len(data) for name, data in tree(tmp_path / "q").items()}
    assert sizes == {"jobs.7": 74, "jobs.8": 74, "jobs.9": 39, "jobs.read.": 18}


def test_without_consumers_the_default_reader_is_placed_before_the_first_item(tmp_path):
    """Without any checkpoint the real program would start at the newest item and skip them all."""
    libkestrel.write(tmp_path / "q", [HI], "jobs")
    assert libkestrel.state(tmp_path / "q").consumers == {"": (4, ())}


@pytest.mark.parametrize(
    ("entries", "options", "error"),
    [
        ([Entry(b"x", 1, key=b"k")], {}, Unsafe),
        ([Entry(b"x", 1, type=3)], {}, Unsafe),
        ([Entry(b"x", 0)], {}, TooLarge),
        ([Entry(b"x", 2), Entry(b"x", 2)], {}, Unsafe),
        ([Entry(b"x" * 30, 1)], {"journal_bytes": 50}, TooLarge),
        ([Entry(bytes((16 << 20) + 1), 1)], {"journal_bytes": 1 << 30}, TooLarge),
        ([Entry(b"x", 1, 1 << 90)], {}, TooLarge),
        ([Entry(b"x", 1)], {"queue": "a/b"}, BadFormat),
        ([Entry(b"x", 1)], {"consumers": {"../x": (0, ())}}, BadFormat),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path, entries, options, error):
    with pytest.raises(error):
        libkestrel.write(tmp_path / "q", entries, **({"queue": "jobs"} | options))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_queue_is_never_replaced(tmp_path):
    queue(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(Unsafe, match="nothing was changed"):
        libkestrel.write(tmp_path, [HI], "jobs")
    assert libkestrel.write(tmp_path, [HI], "jobs2") == 1
    assert before.items() <= tree(tmp_path).items()


def test_a_repair_keeps_ids_and_readers_and_leaves_the_original_alone(tmp_path):
    folder = queue(tmp_path / "q", SEGMENT + PUT_5[:9])
    before = tree(folder)
    done = libkestrel.repair(folder)
    assert before == tree(folder)
    assert (2, tmp_path / "q.repaired", None) == (done.messages, done.path, done.kept)
    assert libkestrel.verify(done.path) == []
    assert libkestrel.state(done.path).consumers == {"": (4, (6,))}
    done = libkestrel.repair(folder, in_place=True)
    assert libkestrel.verify(folder) == []
    assert before == tree(done.kept)


def test_a_reader_that_is_not_there_is_named_with_those_that_are(tmp_path):
    with pytest.raises(NotFound, match="''"):
        libkestrel.read(queue(tmp_path), consumer="audit")


# ------------------------------------------------------------------------------------------ fixtures


def item(expected):
    expires = expected["expire_time_ms"]
    return (
        bytes.fromhex(expected["data_hex"]),
        expected["id"],
        expected["add_time_ms"] * MS,
        None if expires is None else expires * MS,
        expected["error_count"],
    )


def fields(entry):
    return entry.payload, entry.index, entry.time_ns, entry.expires_ns, entry.attempts


@pytest.mark.parametrize("path", cases("libkestrel"))
def test_items_and_readers_are_what_the_real_program_wrote(path):
    it = Case(path)
    assert list(map(item, it["items"])) == list(map(fields, libkestrel.read(it.path, it["queue"])))
    state = libkestrel.state(it.path, it["queue"])
    for name, reader in it["readers"].items():
        if "checkpoint_error" in reader:
            assert any(problem.file == f"{it['queue']}.read.{name}" for problem in state.problems)
            continue
        assert (reader["head"], tuple(reader["done"])) == state.consumers[name]
        delivered = [entry.index for entry in libkestrel.read(it.path, it["queue"], consumer=name)]
        assert reader["ids_to_deliver_by_document"] == delivered
    assert set(it["readers"]) == set(state.consumers)


@pytest.mark.parametrize("path", cases("libkestrel"))
def test_as_program_delivers_what_the_real_program_delivered(path):
    it = Case(path)
    state = libkestrel.state(it.path, it["queue"], as_program=True)
    for name, seen in it["observed"]["readers"].items():
        entries = libkestrel.read(it.path, it["queue"], consumer=name, as_program=True)
        assert seen["ids_the_real_reader_delivers"] == [entry.index for entry in entries]
        assert (seen["head"], tuple(seen["done"])) == state.consumers[name]


@pytest.mark.parametrize("path", cases("libkestrel"))
def test_damage_is_reported_where_the_real_reader_stops(path):
    it = Case(path)
    problems = {problem.file: problem.position for problem in libkestrel.state(it.path, it["queue"]).problems}
    for dump in it["dump_by_real_reader"]:
        if dump.get("error") and dump["size"] >= 4 and ".read." not in dump["path"] and dump["valid_end"]:
            assert dump["valid_end"] == problems[dump["path"]]


def closed_by_its_writer(it):
    """Whether its bytes are what a writer leaves: neither edited nor killed."""
    return it.get("kind") == "real" and not it.name.startswith("killed")


@pytest.mark.parametrize("path", cases("libkestrel", closed_by_its_writer))
def test_writing_gives_the_real_programs_bytes(path, tmp_path):
    it = Case(path)
    state = libkestrel.state(it.path, it["queue"])
    entries = libkestrel.read(it.path, it["queue"])
    libkestrel.write(tmp_path / "q", entries, it["queue"], state.consumers, journal_bytes=it["journal_size"])
    ours = [data for name, data in sorted(tree(tmp_path / "q").items()) if ".read." not in name]
    theirs = [(it.path / name).read_bytes() for name in state.files if ".read." not in name]
    assert theirs == ours
    for name in state.consumers:
        file = f"{it['queue']}.read.{name}"
        assert (it.path / file).read_bytes() == (tmp_path / "q" / file).read_bytes()


@pytest.mark.parametrize("path", cases("libkestrel"))
def test_a_round_trip_keeps_everything(path, tmp_path):
    it = Case(path)
    before = libkestrel.state(it.path, it["queue"])
    formats.write(tmp_path / "q", libkestrel.read(it.path, it["queue"]), "libkestrel", it["queue"], before.consumers)
    after = libkestrel.state(tmp_path / "q")
    assert before.consumers == (after.consumers if before.consumers else {})
    assert list(map(item, it["items"])) == list(map(fields, formats.read(tmp_path / "q")))
    assert libkestrel.verify(tmp_path / "q") == []


def test_the_first_sixteen_bytes_are_what_the_page_says():
    it = case("libkestrel", "basic")
    name = next(file["path"] for file in it["files"] if ".read." not in file["path"])
    data = (it.path / name).read_bytes()
    assert data[:4] == libkestrel.WRITER_MAGIC
    assert (0x86, len(bytes.fromhex(it["items"][0]["data_hex"]))) == struct.unpack_from("<Bi", data, 4)

"""Writing Chronicle queues: one promise per test."""

from __future__ import annotations

import datetime
import json
import struct
from functools import partial

import pytest
from format_fixtures import FIXTURES

import shmq
from shmq import formats
from shmq.errors import BadFormat, TooLarge, Unsafe
from shmq.formats.chronicle import cycles, fresh
from shmq.formats.chronicle import words as words_
from shmq.formats.chronicle.cycles import CYCLES
from shmq.formats.chronicle.encoder import encode
from shmq.formats.chronicle.read import read
from shmq.formats.chronicle.write import losses
from shmq.formats.chronicle.write import write as write_
from shmq.formats.model import Entry

GIVEN = FIXTURES / "chronicle" / "given"
DAY_NS = 86_400_000_000_000
NOW_NS = 1_700_086_400_000_000_000


# ---------------------------------------------------------------- roll cycles
@pytest.mark.parametrize(
    ("name", "shift", "most"),
    [
        ("FIVE_MINUTELY", 32, 0x40000000),
        ("FAST_DAILY", 32, 0xFFFFFFFF),
        ("MINUTELY", 32, 0x4000000),
        ("HOURLY", 32, 0x10000000),
        ("DAILY", 32, 0xFFFFFFFF),
        ("LARGE_DAILY", 37, 0x1FFFFFFFFF),
        ("XLARGE_DAILY", 38, 0x3FFFFFFFFF),
        ("HUGE_DAILY", 40, 0xFFFFFFFFFF),
        ("SMALL_DAILY", 32, 0x20000000),
        ("LARGE_HOURLY_SPARSE", 34, 0x3FFFFFFFF),
        ("LARGE_HOURLY_XSPARSE", 42, 0x3FFFFFFFFFF),
        ("HUGE_DAILY_XSPARSE", 48, 0xFFFFFFFFFFFF),
        ("TEST_SECONDLY", 32, 0xFFFFFFFF),
        ("TEST_DAILY", 32, 0x40),
        ("TEST2_DAILY", 32, 0x200),
        ("TEST4_DAILY", 32, 0x1000),
        ("TEST8_DAILY", 32, 0x20000),
    ],
)
def test_an_index_is_cut_where_the_sheet_says(name, shift, most):
    """The cut comes from the cycle's own count and spacing, and so does what a cycle holds."""
    assert (CYCLES[name].shift, CYCLES[name].max_messages) == (shift, most)


def test_every_cycle_names_its_files_so_that_they_are_found_again():
    """Also with an epoch, before which and after which the day is another."""
    for each in CYCLES.values():
        for epoch in (0, 75_600_000, -3_600_000, -172_800_005, -3 * cycles.DAY_MS, 5 * cycles.DAY_MS + 1):
            for ms in (1_700_086_400_000, 1_709_164_800_000, 2_145_916_799_999):
                cycle = each.cycle_at(ms, epoch)
                assert each.cycle_of(each.file_name(cycle, epoch), epoch) == cycle, (each.name, epoch, ms)
                assert each.start_ms(cycle, epoch) <= ms < each.start_ms(cycle + 1, epoch)


@pytest.mark.parametrize(
    ("name", "epoch", "cycle", "file"),
    [
        ("FAST_DAILY", 0, 19676, "20231115F.cq4"),
        ("FAST_DAILY", 75_600_000, 19676, "20231115F.cq4"),
        ("FAST_HOURLY", 0, 472246, "20231115-22F.cq4"),
        ("MINUTELY", 0, 28334773, "20231115-2213.cq4"),
        ("TEST4_DAILY", 0, 19680, "20231119T4.cq4"),
        ("WEEKLY", 0, 2808, "2023W44.cq4"),  # From here on: what Java's own formatter printed.
        ("WEEKLY", 0, 0, "1970W02.cq4"),
        ("WEEKLY", 0, 2817, "2024W01.cq4"),
        ("FAST_HOURLY", 0, 111111111, "+146450630-15F.cq4"),
        ("FAST_DAILY", -3_600_000, 0, "19691231F.cq4"),
        ("FAST_DAILY", -172_800_005, 0, "19691231F.cq4"),
        ("FAST_DAILY", -172_800_000, 2, "19700101F.cq4"),
    ],
)
def test_files_are_named_as_java_names_them(name, epoch, cycle, file):
    """Names from the fixtures and from Java's formatter."""
    assert CYCLES[name].file_name(cycle, epoch) == file
    assert CYCLES[name].cycle_of(file, epoch) == cycle


def test_what_is_no_date_is_no_cycle():
    """Nor is a name of another pattern, an hour that this cycle never begins at, or a strange kind of digit."""
    for name in ("20230230F", "20231315F", "2023111F", "20231115", "20231115FF", "2023111\u0665F", "+20231115F", ""):
        assert CYCLES["FAST_DAILY"].cycle_of(name + ".cq4") is None, name
    assert CYCLES["FOUR_HOURLY"].cycle_of("20231115-22IV.cq4") is None
    assert CYCLES["FAST_HOURLY"].cycle_of("20231115-24F.cq4") is None
    assert CYCLES["WEEKLY"].cycle_of("2023W54.cq4") is None
    assert CYCLES["FAST_DAILY"].cycle_of("20231115F.cq4t") is None
    assert CYCLES["FAST_DAILY"].cycle_of("19691231F.cq4") is None


@pytest.mark.parametrize("pattern", ["yyyyMMddMM", "y" * 5000, "yyyyQdd", "MMdd"])
def test_a_pattern_that_java_would_not_take_is_refused(pattern):
    """It may be anybody's, from a damaged table."""
    with pytest.raises(ValueError, match="the pattern"):
        cycles.RollCycle("x", pattern, 1000, 8, 1).file_name(5)


def test_two_quotes_in_a_pattern_are_one():
    """As in Java's."""
    odd = cycles.RollCycle("x", "yyyy''MMdd", cycles.DAY_MS, 8, 1)
    assert odd.file_name(5) == "1970'0106.cq4"
    assert odd.cycle_of("1970'0106.cq4") == 5


def test_the_calendar_agrees_with_pythons_as_far_as_that_goes():
    """Every day of four centuries, and the ends."""
    first = datetime.date(1970, 1, 1).toordinal()
    for day in [*range(0, 146_097, 17), -719_162, 2_932_896]:
        date = datetime.date.fromordinal(first + day)
        assert cycles._civil(day) == (date.year, date.month, date.day)
        assert cycles._days(date.year, date.month, date.day) == day


def test_an_index_is_signed_as_javas_long_is():
    """A cycle too large for its bits wraps, and comes apart again as Java takes it apart."""
    fast, sparse = CYCLES["FAST_DAILY"], CYCLES["HUGE_DAILY_XSPARSE"]
    assert fast.index(19676, 3) == 0x4CDC00000003
    assert fast.split(0x4CDC00000003) == (19676, 3)
    assert sparse.index(40_000, 7) == (40_000 << 48 | 7) - (1 << 64)
    assert sparse.split(sparse.index(40_000, 7)) == (40_000 - 65_536, 7)


def test_a_cycle_is_guessed_in_javas_order():
    """HALF_HOURLY and HUGE_DAILY have the same letter; the part of the time tells them apart."""
    names = {
        "20231115-2200H": "HALF_HOURLY",
        "20231115H": "HUGE_DAILY",
        "20231115-2200X": "TEN_MINUTELY",
        "20231115X": "XLARGE_DAILY",
        "20231115-2200XX": "TWENTY_MINUTELY",
        "2023W44": "WEEKLY",
        "20231115": "DAILY",
    }
    for name, cycle in names.items():
        found = cycles.guess([name + ".cq4"])
        assert found is not None
        assert found.name == cycle
    assert cycles.guess(["nothing.cq4", "20231115T4.cq4"]) is CYCLES["TEST4_DAILY"]
    assert cycles.guess(["metadata.cq4t"]) is None
    assert cycles.by_format("yyyyMMdd-HHmm'V'") is CYCLES["FIVE_MINUTELY"]
    assert cycles.by_format("yyyyMMdd", 1) is None


def test_weekly_stores_no_epoch_and_has_one():
    """Its weeks begin on Sunday; the epoch in its metadata is 0."""
    weekly = CYCLES["WEEKLY"]
    sunday = 1_698_537_600_000  # 2023-10-29
    assert weekly.cycle_at(sunday) == 2808
    assert weekly.cycle_at(sunday - 1) == 2807


# ---------------------------------------------------------------- whole queues, against Java's own bytes
def given(*, but=()):
    """The fixtures that the Java program of version 5 wrote, or one visible skip."""
    found = sorted(each.parent for each in GIVEN.glob("**/expected.json") if "javaRead" in each.read_text())
    names = [str(each.relative_to(GIVEN)) for each in found]
    if not names:
        reason = f"no chronicle fixtures in {FIXTURES} (set SHMQ_FIXTURES)"
        return [pytest.param("", id="no-fixtures", marks=pytest.mark.skip(reason=reason))]
    return [name for name in names if name not in but]


OPTIONS = {
    "custom-index": {"roll_time": "21:00", "index_count": 16, "index_spacing": 4},
    "method": {"source_id": 7},
}


def entries_of(folder, expected):
    """Everything that the fixture says is in the files, cut out of them, in their order."""
    found = []
    for file in expected["files"]:
        data = (folder / file["file"]).read_bytes()
        for each in file["metaDocs"]:
            if not {"index", "index2index"} & set(each["value"]):
                payload = data[each["pos"] + 4 : each["pos"] + 4 + each["len"]]
                extra = {"meta": True, "cycle": file["cycle"]}
                found.append((file["file"], each["pos"], Entry(payload, extra=extra)))
        for each in expected["messages"]:
            if each["file"] == file["file"]:
                payload = data[each["pos"] + 4 : each["pos"] + 4 + each["len"]]
                found.append((file["file"], each["pos"], Entry(payload, int(each["index"], 16))))
    return [entry for _, _, entry in sorted(found)]


def consumers_of(entries):
    return {
        key[6:]: (value, ())
        for key, value in entries.items()
        if key.startswith("index.") and not key.endswith((".lock", ".version"))
    }


# Where a run of Java's own differs from what the messages alone make of it:
#   metadata.cq4t  listing.modCount counts openings too; a replicated tailer's version counts its updates; a user's
#                  own key; who holds the lock
#   crash          the bytes of a dead writer behind the last message
#   */before       damaged on purpose: an EOF taken out, a word not ready, a writePosition taken back
#   empty-cycle    a file without a message, which no entry stands for (its bytes are compared below)
@pytest.mark.parametrize("name", given(but=("empty-cycle",)))
def test_a_queue_rebuilt_from_its_messages_is_javas_byte_for_byte(name, tmp_path):
    """Data files whole, with their length; the table but for its counters. Anything else that differs is a failure."""
    folder = GIVEN / name
    expected = json.loads((folder / "expected.json").read_text())
    table = expected["metadata"]["entries"]
    entries = entries_of(folder, expected)
    roll_cycle = expected["javaRead"]["rollCycle"]
    out = tmp_path / "out"
    options = OPTIONS.get(name, {})
    count = write_(out, entries, None, consumers_of(table), roll_cycle=roll_cycle, **options)
    assert count == sum(not entry.extra for entry in entries)
    assert sorted(each.name for each in out.iterdir()) == sorted(
        each.name for each in folder.iterdir() if each.suffix in {".cq4", ".cq4t"}
    )
    for path in out.iterdir():
        java, ours = (folder / path.name).read_bytes(), path.read_bytes()
        assert len(ours) == len(java), path.name
        ranges = allowed(name, path.name, java)
        differ = [at for at in range(len(ours)) if ours[at] != java[at]]
        assert not [at for at in differ if not any(at in each for each in ranges)], (path.name, differ[:20])


def allowed(name, file, java):
    """The bytes that may differ, as the comment above says."""
    if file == "metadata.cq4t":
        found = [range(280, 288) if name != "custom-index" else range(0)]
        if name == "tailers":
            found += [range(696, 704), range(744, 776)]
        return found + ([range(320, 328)] if name == "crash" else [])
    end = max(at for at in range(len(java)) if java[at]) + 1
    damaged = {
        "crash": [range(65872, 65972)],
        "missing-eof/before": [range(66128, 66136)] * file.endswith("-22.cq4"),
        "recover-not-ready/before": [range(66836, 66848)],
        "recover-stale-writeposition/before": [range(64, 80)],
    }
    assert name not in damaged or end > 64
    return damaged.get(name, [])


def test_a_new_file_without_a_message_is_javas_byte_for_byte():
    """Header, index2index and the first page; the rest is zero."""
    path = GIVEN / "empty-cycle" / "20231115F.cq4"
    if not path.exists():
        pytest.skip(f"no chronicle fixtures in {FIXTURES} (set SHMQ_FIXTURES)")
    data = path.read_bytes()
    new = fresh.store(4096, 256).whole()
    assert new == data[: len(new)]
    assert not any(data[len(new) :])
    assert fresh.file_bytes(0, fresh.block_of(0, 4096)) == len(data)
    assert fresh.file_bytes(0, fresh.block_of(fresh.DEFAULT_BLOCK, 4096)) == 80 << 20


@pytest.mark.parametrize("name", sorted(CYCLES))
def test_the_numbers_of_a_new_file_are_aligned_in_every_cycle(name):
    """Each can be changed at once by all who map it: a multiple of 8, the pair of 16."""
    cycle = CYCLES[name]
    store = fresh.store(cycle.index_count, cycle.index_spacing)
    data = store.whole()
    assert not store.write_position_at % 16
    assert not store.last_index_at % 8
    assert not store.index2index_slots % 8
    assert not store.page_slots % 8
    assert store.start == len(data)
    assert not store.start % 4
    assert struct.unpack_from("<I", data, store.index2index)[0] >> 30 == 1
    assert struct.unpack_from("<q", data, store.index2index_slots)[0] == store.first_page
    # A spacing that takes four bytes moves all that follows it, as the sheet says.
    assert store.index2index == (208 if cycle.index_spacing > 0xFFFF else 200)


@pytest.mark.parametrize("position", range(0, 16, 4))
def test_an_index_page_is_aligned_wherever_it_falls(position):
    """Between the messages it may begin at any multiple of 4."""
    page = fresh.index_document(4096 + position, "index", 8)
    slots = fresh.slots_of(4096 + position, "index")
    assert not slots % 8
    assert len(page) == slots - 4096 - position
    assert struct.unpack_from("<qq", page, len(page) - 16) == (8, 0)
    assert struct.unpack_from("<I", page)[0] == words_.META | (len(page) + 64 - 4)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (0, "a100"),
        (255, "a1ff"),
        (256, "a50001"),
        (32767, "a5ff7f"),
        (32768, "a20080"),
        (65536, "a600000100"),
        (1 << 31, "a300000080"),
        (-1, "a4ff"),
        (-129, "a57fff"),
        (-32769, "a6ff7fffff"),
        (1 << 32, "900000804f"),
        (1_700_000_000_001, "a70168e5cf8b010000"),
    ],
)
def test_a_number_is_written_in_the_code_that_java_takes(number, code):
    """A float at times, for a long beyond 32 bits that it holds exactly."""
    assert encode(number).hex() == code


# ---------------------------------------------------------------- whole queues, what they refuse
def words(path):
    """(position, word) of every document of a data file, up to where nothing is."""
    data = path.read_bytes()
    at = 0
    found = []
    while True:
        (word,) = struct.unpack_from("<I", data, at)
        found.append((at, word))
        if not word or word >> 31:
            return found
        at = (at + 4 + (word & words_.LENGTH) + 3) & ~3


def payloads(folder):
    """What is in a queue, file by file, by nothing but the words."""
    found = {}
    for path in sorted(folder.glob("*.cq4")):
        data = path.read_bytes()
        there = [(at, word) for at, word in words(path) if word and not word >> 30]
        found[path.name] = [data[at + 4 : at + 4 + word] for at, word in there]
    return found


def test_without_an_index_the_time_says_the_cycle_and_never_an_earlier_one(tmp_path):
    """A clock that goes back stays in the file that is open; EOF stands in all files but the last."""
    times = [3 * DAY_NS, 3 * DAY_NS + 5, 4 * DAY_NS, 2 * DAY_NS, 6 * DAY_NS]
    write_(tmp_path / "q", [Entry(b"%d" % number, time_ns=each) for number, each in enumerate(times)])
    assert payloads(tmp_path / "q") == {
        "19700104F.cq4": [b"0", b"1"],
        "19700105F.cq4": [b"2", b"3"],
        "19700107F.cq4": [b"4"],
    }
    ends = [words(path)[-1][1] for path in sorted((tmp_path / "q").glob("*.cq4"))]
    assert ends == [words_.EOF, words_.EOF, 0]


def test_the_day_can_begin_at_another_hour(tmp_path):
    """roll_time is an epoch, and is told to the program in the table."""
    evening = 21 * 3600 * 1_000_000_000
    write_(
        tmp_path / "q",
        [Entry(b"a", time_ns=evening - 1 + DAY_NS), Entry(b"b", time_ns=evening + DAY_NS)],
        roll_time="21:00",
    )
    assert list(payloads(tmp_path / "q")) == ["19700101F.cq4", "19700102F.cq4"]
    assert b"rollTime\xb2\x0521:00" in (tmp_path / "q" / "metadata.cq4t").read_bytes()


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Entry(b"x", expires_ns=1), "expiry"),
        (Entry(b"x", key=b"k"), "key"),
        (Entry(b"x", type=3), "type"),
        (Entry(b"x", attempts=1), "attempts"),
        (Entry(b""), "8F"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_or_lost_by_wish(entry, why, tmp_path):
    """Nothing is left behind by the refusal."""
    with pytest.raises(Unsafe, match=why):
        write_(tmp_path / "q", [entry])
    assert list(tmp_path.iterdir()) == []
    assert write_(tmp_path / "q", [entry], lossy=True) == 1
    assert [each for found in payloads(tmp_path / "q").values() for each in found] == [entry.payload or b"\x8f"]


def test_a_gap_between_indices_is_refused_closed_or_numbered_anew(tmp_path):
    """The format counts the messages of a file from 0; it has no place for a number that is left out."""
    one = CYCLES["FAST_DAILY"].index(5, 0)
    entries = [Entry(b"a", one), Entry(b"b", one + 2)]
    with pytest.raises(Unsafe, match="message 2 of its cycle and 1 is next"):
        write_(tmp_path / "q", entries)
    with pytest.raises(Unsafe, match="cycle 4 after cycle 5"):
        write_(tmp_path / "q", [Entry(b"a", one), Entry(b"b", one - (1 << 32))])
    write_(tmp_path / "closed", entries, lossy=True)
    assert payloads(tmp_path / "closed") == {"19700106F.cq4": [b"a", b"b"]}
    write_(tmp_path / "anew", [each._replace(time_ns=0) for each in entries], anew=True)
    assert payloads(tmp_path / "anew") == {"19700101F.cq4": [b"a", b"b"]}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["anew", "closed"]


def test_a_cycle_that_is_full_is_refused_before_it_is_too_late(tmp_path):
    """Java stores the message and throws behind it."""
    entries = [Entry(b"x", time_ns=0)] * 65
    with pytest.raises(TooLarge, match="full with 64 messages"):
        write_(tmp_path / "q", entries, roll_cycle="TEST_DAILY")
    assert list(tmp_path.iterdir()) == []
    assert write_(tmp_path / "q", entries[:64], roll_cycle="TEST_DAILY") == 64


def test_a_queue_in_a_folder_that_is_not_there_yet_is_written_with_it(tmp_path):
    """Both or neither."""
    with pytest.raises(Unsafe, match="key"):
        write_(tmp_path / "folder", [Entry(b"x", key=b"k")], "q")
    assert list(tmp_path.iterdir()) == []
    write_(tmp_path / "folder", [Entry(b"x", time_ns=0)], "q")
    assert payloads(tmp_path / "folder" / "q") == {"19700101F.cq4": [b"x"]}


def test_a_message_has_to_fit_the_block(tmp_path):
    """By default Java's own; the file is as long as a program with such blocks makes it."""
    with pytest.raises(TooLarge, match="65520 are the most"):
        write_(tmp_path / "q", [Entry(bytes(65521))], block_bytes=1 << 16)
    write_(tmp_path / "small", [Entry(bytes(65520), time_ns=0)], block_bytes=1 << 16)
    assert (tmp_path / "small" / "19700101F.cq4").stat().st_size == 131072 + 65536
    with pytest.raises(TooLarge, match="16777200 are the most"):
        write_(tmp_path / "q", [Entry(bytes((16 << 20) - 15))])
    write_(tmp_path / "large", [Entry(bytes((16 << 20) - 16), time_ns=0)])
    write_(tmp_path / "java", [Entry(b"x", time_ns=0)], block_bytes=fresh.DEFAULT_BLOCK)
    there = (tmp_path / "java" / "19700101F.cq4").stat()
    assert there.st_size == 80 << 20
    assert there.st_blocks * 512 < 1 << 20


@pytest.mark.parametrize(
    ("consumers", "kind", "why"),
    [
        ({"a": (1, (3,))}, Unsafe, "out of order"),
        ({"a": (1 << 63, ())}, TooLarge, "64 bits"),
        ({"": (0, ())}, BadFormat, "printable"),
        ({"a\n": (0, ())}, BadFormat, "printable"),
        ({"\u20ac": (0, ())}, BadFormat, "printable"),
        ({"replicated:a": (0, ()), "replicated:a.lock": (0, ())}, BadFormat, "not at all"),
        ({"a": (0, ()), "A": (0, ())}, BadFormat, "case"),
        ({f"{number:099d}": (0, ()) for number in range(600)}, BadFormat, "of 65536"),
    ],
)
def test_a_tailer_that_the_table_cannot_hold_is_refused(consumers, kind, why, tmp_path):
    """And nothing is left behind."""
    with pytest.raises(kind, match=why):
        write_(tmp_path / "q", [], None, consumers)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"roll_cycle": "YEARLY"}, "YEARLY"),
        ({"index_count": 24}, "powers of two"),
        ({"index_count": 4}, "powers of two"),
        ({"index_spacing": 3}, "powers of two"),
        ({"roll_time": "25:00"}, "HH:MM"),
        ({"roll_time": "21:00", "epoch": 5}, "HH:MM"),
        ({"source_id": -1}, "source id"),
    ],
)
def test_options_that_chronicle_has_not_are_refused(options, why, tmp_path):
    """By what they are."""
    with pytest.raises(BadFormat, match=why):
        write_(tmp_path / "q", [], **options)


def test_a_queue_that_is_there_is_not_replaced(tmp_path):
    """Whatever file of one it is."""
    write_(tmp_path / "q", [Entry(b"x")])
    with pytest.raises(Unsafe, match="is there"):
        write_(tmp_path / "q", [Entry(b"y")])
    (tmp_path / "q" / "metadata.cq4t").unlink()
    with pytest.raises(Unsafe, match="is there"):
        write_(tmp_path / "q", [Entry(b"y")])
    assert [each for found in payloads(tmp_path / "q").values() for each in found] == [b"x"]


def test_nothing_is_seen_of_a_queue_whose_entries_fail(tmp_path):
    """All or nothing."""

    def entries():
        yield Entry(b"x", time_ns=0)
        yield Entry(b"x", time_ns=DAY_NS)
        raise ValueError

    with pytest.raises(ValueError):
        write_(tmp_path / "q", entries())
    assert list(tmp_path.iterdir()) == []


def test_many_pages_and_many_files_keep_their_indices(tmp_path):
    """Every indexed message is where its page says, in a file that goes through many pages."""
    write_(tmp_path / "q", [Entry(b"%d" % each, time_ns=0) for each in range(4096)], roll_cycle="TEST4_DAILY")
    path = tmp_path / "q" / "19700101T4.cq4"
    data = path.read_bytes()
    store = fresh.store(32, 4)
    used, *pages = struct.unpack_from("<33q", data, store.index2index_slots - 8)
    assert used == 32
    there = [at for at, word in words(path) if word and not word >> 30]
    assert len(there) == 4096
    for number, page in enumerate(pages):
        slots = struct.unpack_from("<33q", data, fresh.slots_of(page, "index") - 8)
        assert slots == (32, *there[number * 128 : (number + 1) * 128 : 4])
    assert struct.unpack_from("<QQ", data, 64) == (there[-1], (there[-1] << 32) + 4095)
    assert struct.unpack_from("<q", data, store.last_index_at) == (4096,)


# ---------------------------------------------------------------- an empty payload
def test_an_empty_payload_is_named_as_a_loss_and_javas_own_is_none(tmp_path):
    """Java's empty document is the byte 8F: that is read and written as it is; what is empty has no place."""
    assert losses(Entry(b"")) == ["emptiness"]
    assert losses(Entry(b"", key=b"k", expires_ns=1)) == ["expiry", "key", "emptiness"]
    assert losses(Entry(fresh.EMPTY, time_ns=5)) == []
    with pytest.raises(Unsafe, match=r"entry 1 .* it is empty, and would come back as the byte 8F"):
        write_(tmp_path / "q", [Entry(b"a"), Entry(b"")])
    assert not (tmp_path / "q").exists()
    write_(tmp_path / "q", [Entry(fresh.EMPTY), Entry(b"")], lossy=True)
    assert [each.payload for each in read(tmp_path / "q")] == [b"\x8f", b"\x8f"]


@pytest.mark.parametrize("given", ["no index", "indices", "anew", "exported"])
def test_a_cycle_is_never_filled_beyond_its_room(tmp_path, given):
    """Java can append nothing to one that is. The one more that Java itself stores is made again, by its index."""
    entries = [Entry(b"%d" % number, (19_675 << 32) + number) for number in range(66)]
    options = {"roll_cycle": "TEST_DAILY", "anew": given == "anew"}
    many = 66 if given in {"indices", "exported"} else 65
    if given == "no index":
        entries = [Entry(each.payload, time_ns=NOW_NS) for each in entries]
    if given == "exported":
        with shmq.open(tmp_path / "source") as queue:
            queue.put_many([each.payload for each in entries])
        made = partial(formats.export_queue, tmp_path / "source", tmp_path / "q", "chronicle", lossy=True, **options)
    else:
        made = partial(write_, tmp_path / "q", entries[:many], **options)
    with pytest.raises(TooLarge, match=r"is full with 64 messages.*Nothing was written"):
        made()
    assert not (tmp_path / "q").exists()
    if given != "exported":
        assert write_(tmp_path / "q", entries[: many - 1], **options) == many - 1

"""Kestrel: what the real program wrote is replayed, what is written is what it would write, damage is named."""

import importlib
import os
import struct

import pytest
from format_fixtures import Case, case, cases, place, tree
from support import Child, hold_until_killed

from shmq import formats
from shmq.errors import BadFormat, Busy, Corrupt, NotFound, TooLarge, Unsafe
from shmq.formats import Entry, kestrel
from shmq.formats.kestrel import (
    ADD,
    ADD_XID,
    ADDX,
    CONFIRM_REMOVE,
    CONTINUE,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    SAVE_XID,
    STATE_DUMP,
    UNREMOVE,
    record,
)

MS = 1_000_000

# Derived by hand from the format's page; every integer is little-endian and signed.
#   02                             opcode 2, ADDX
#   12 00 00 00                    i32 size 18 = 8 + 8 + 2
#   e8 03 00 00 00 00 00 00        i64 add time 1000 ms
#   00 00 00 00 00 00 00 00        i64 expiry: none
#   68 69                          "hi"
verify_module = importlib.import_module("shmq.formats.kestrel.verify")

HI = bytes.fromhex("02 12000000 e803000000000000 0000000000000000 6869")
#   00  05 00 00 00                opcode 0, ADD, size 5 = 4 + 1
#   09 00 00 00                    i32 expiry 9 s
#   78                             "x"
X = bytes.fromhex("00 05000000 09000000 78")
ENTRY_HI = Entry(b"hi", None, 1000 * MS, None, None, None, None, {"segment": "cars"})
ENTRY_X = Entry(b"x", None, None, 9_000 * MS, None, None, None, {"segment": "cars"})


def add(name, op=ADDX, **options):
    return record(op, entry=Entry(name.encode(), None, 1_300_000_000_000 * MS), **options)


def names(folder, queue="cars", **options):
    return [entry.payload.decode() for entry in kestrel.read(folder, queue, **options)]


def journal(folder, *records, **more):
    return place(folder, {"cars": b"".join(records)} | {name.replace("_", "."): data for name, data in more.items()})


# ------------------------------------------------------------------------------------------ by hand


def test_records_derived_by_hand_are_read(tmp_path):
    journal(tmp_path, HI, X)
    assert list(kestrel.read(tmp_path)) == [ENTRY_HI, ENTRY_X]
    assert (record(ADDX, entry=ENTRY_HI), record(ADD, entry=ENTRY_X)) == (HI, X)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (record(REMOVE), "01"),
        (record(REMOVE_TENTATIVE), "03"),
        (record(SAVE_XID, xid=41), "04 29000000"),
        (record(UNREMOVE, xid=-1), "05 ffffffff"),
        (record(CONFIRM_REMOVE, xid=1), "06 01000000"),
        (record(ADD_XID, xid=2, entry=ENTRY_HI), "07 02000000" + HI.hex()[2:]),
        (record(CONTINUE, xid=2, entry=ENTRY_HI), "08 02000000" + HI.hex()[2:]),
        (record(STATE_DUMP, xid=2, count=3), "08 02000000 03000000"),
        (record(REMOVE_TENTATIVE_XID, xid=258), "09 02010000"),
    ],
)
def test_every_opcode_is_written_as_the_page_says(data, expected):
    assert bytes.fromhex(expected) == data


@pytest.mark.parametrize(
    ("records", "left", "opened"),
    [
        ([REMOVE, add("a"), REMOVE, REMOVE, add("b")], ["b"], []),
        ([add("a"), add("b"), (9, 5)], ["a", "b"], [5]),
        ([add("a"), add("b"), add("c"), (9, 5), (9, 2)], ["b", "a", "c"], [2, 5]),
        ([add("a"), add("b"), (9, 5), (6, 5)], ["b"], []),
        ([add("a"), add("b"), (9, 5), (9, 6), (5, 5), (5, 6)], ["b", "a"], []),
        ([add("a"), add("b"), (9, 5), (5, 5), REMOVE], ["b"], []),
        ([add("a"), (5, 9), (6, 9)], ["a"], []),
        ([add("a"), (9, 1), add("b", CONTINUE, xid=1)], ["b"], []),
        # 1.x: the next id after the last one; a named one is used as it is named
        ([(4, 41), add("a", ADD_XID, xid=40), 3, add("b"), 3, add("c")], ["a", "b", "c"], [40, 42]),
        # the next id passes over 0, over the open ones, and from the largest to the smallest
        ([(4, -1), add("a"), 3, add("b"), 3], ["a", "b"], [1, 2]),
        ([(4, 2**31 - 1), add("a"), 3], ["a"], [-(2**31)]),
    ],
)
def test_replaying_gives_the_queue(tmp_path, records, left, opened):
    data = b"".join(
        one if isinstance(one, bytes) else bytes([one]) if isinstance(one, int) else struct.pack("<Bi", *one)
        for one in records
    )
    journal(tmp_path, data)
    assert left == names(tmp_path)
    state = kestrel.state(tmp_path)
    assert opened == list(state.open)
    assert opened == [entry.extra["xid"] for entry in kestrel.read(tmp_path) if "xid" in entry.extra]
    assert len(left) == state.messages


def test_head_kestrel_gives_every_transaction_of_a_1x_journal_the_same_id(tmp_path):
    """
    It reads opcode 3 as "xid 0": the second one replaces the first, whose item is lost. The document says "the next
    available transaction ID", which is what the 1.x releases did.
    """
    journal(tmp_path, add("a"), add("b"), record(REMOVE_TENTATIVE), record(REMOVE_TENTATIVE))
    assert names(tmp_path) == ["a", "b"]
    assert names(tmp_path, as_program=True) == ["b"]


def test_both_meanings_of_opcode_8_are_told_apart(tmp_path):
    """
    Every release writes CONTINUE (xid, size, times, data). One week of the main branch wrote STATE_DUMP (xid, count),
    which ends its file on replay; head Kestrel reads that as a broken CONTINUE.
    """
    dump = record(STATE_DUMP, xid=1, count=1) + add("a", ADD_XID, xid=1) + record(REMOVE_TENTATIVE)
    journal(tmp_path, add("z"), cars_1=add("a") + record(REMOVE_TENTATIVE) + dump + add("after the dump"))
    assert names(tmp_path) == ["a", "z"]
    assert kestrel.state(tmp_path).problems == []
    journal(tmp_path, add("z"), cars_1=add("a") + record(REMOVE_TENTATIVE_XID, xid=1) + add("b", CONTINUE, xid=1))
    assert names(tmp_path) == ["b", "z"]
    assert names(tmp_path, state_dump=True) == ["a", "z"]


def test_a_dump_of_sixteen_transactions_is_no_continue(tmp_path):
    """As a CONTINUE, a count of 16 would be a possible size; the ADD_XIDs behind it tell."""
    opened = b"".join(add(f"{n}", ADD_XID, xid=n) + record(REMOVE_TENTATIVE) for n in range(1, 17))
    journal(tmp_path, add("a"), record(STATE_DUMP, xid=16, count=16), opened, add("b"))
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (HI[:-1], "ends inside"),
        (HI[:3], "ends inside"),
        (b"\x09\0", "ends inside"),
        (bytes(40), "a size of 0"),
        (b"\x7f" + HI, "opcode 127"),
        (bytes.fromhex("02 0f000000") + bytes(16), "a size of 15"),
        (bytes.fromhex("02 ffffff7f") + bytes(16), "ends inside"),
        (bytes.fromhex("07 01000000 ffffffff") + bytes(16), "a size of -1"),
    ],
)
def test_damage_costs_the_rest_of_its_own_file_only(tmp_path, bad, reason):
    """
    The real program finds the break in the rotated file and cuts the *current* file at that position, so that the
    healthy records there are lost; the document says that a broken file is cut.
    """
    journal(tmp_path, add("later one"), add("later two"), cars_5=add("first") + bad)
    assert names(tmp_path) == ["first", "later one", "later two"]
    (problem,) = kestrel.state(tmp_path).problems
    assert ("cars.5", len(add("first"))) == problem[:2]
    assert reason in problem.reason
    with pytest.raises(Corrupt, match="nothing was delivered"):
        names(tmp_path, strict=True)
    if "-1" in reason:
        with pytest.raises(Corrupt, match="fails to start"):
            names(tmp_path, as_program=True)
    else:
        # Cut at 26 in the middle of "later one" (30 bytes), the current file is broken at 0.
        assert names(tmp_path, as_program=True) == ["first"]


def test_a_refused_journal_is_not_left_open(tmp_path):
    """Whoever looks through a thousand damaged journals would have no files left."""
    journal(tmp_path, add("a"), b"\x09 not an operation")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(Corrupt):
            names(tmp_path, strict=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_are_replayed_by_number_and_the_bare_name_last(tmp_path):
    journal(tmp_path, add("d"), cars_9=add("b"), cars_10=add("c"), cars_8=add("a"))
    assert names(tmp_path) == ["a", "b", "c", "d"]
    assert kestrel.state(tmp_path).files == ["cars.8", "cars.9", "cars.10", "cars"]


def test_a_pack_stands_for_everything_up_to_its_number(tmp_path):
    journal(tmp_path, add("d"), cars_9=add("b"), cars_9_pack=add("p"), cars_10=add("c"), cars_8=add("a"))
    assert names(tmp_path) == ["p", "c", "d"]
    journal(tmp_path, add("d"), cars_8_pack=add("older pack"))
    assert names(tmp_path) == ["p", "c", "d"]


def test_an_empty_pack_replaces_what_it_names_and_that_is_said(tmp_path):
    journal(tmp_path, add("d"), cars_9=add("b"), cars_9_pack=b"")
    assert names(tmp_path) == ["d"]
    assert "cars.9" in kestrel.state(tmp_path).problems[0].reason


def test_other_names_are_not_replayed(tmp_path):
    journal(tmp_path, add("a"), cars_bak=add("b"), cars2=add("c"))
    place(tmp_path, {"cars~~5": add("temporary"), "cars.5~~": add("t"), "cars.5.old": add("copy")})
    assert names(tmp_path) == ["a"]
    assert sorted(problem.file for problem in kestrel.verify(tmp_path, "cars")) == [
        "cars.5.old",
        "cars.5~~",
        "cars.bak",
        "cars~~5",
    ]


def test_expired_items_are_delivered_and_dropped_only_when_asked(tmp_path):
    """The program drops expired items at the head, when something touches the queue: not while it replays."""
    journal(tmp_path, HI, X)
    assert names(tmp_path) == ["hi", "x"]
    assert names(tmp_path, now_ns=9_001 * MS) == ["hi"]
    assert names(tmp_path, now_ns=9_000 * MS) == ["hi", "x"]


def test_fan_out_children_are_consumers_of_their_parent(tmp_path):
    journal(tmp_path, *map(add, "abcd"), **{"cars+late": add("c") + add("d"), "cars+own": add("x") + add("d")})
    assert kestrel.state(tmp_path).consumers == {"late": (2, ()), "own": (None, ())}
    assert names(tmp_path, "cars+own") == ["x", "d"]
    assert names(tmp_path, consumer="late") == ["c", "d"]
    assert [entry.payload for entry in formats.read(tmp_path / "cars+late")] == [b"c", b"d"]


def test_records_on_the_edge_of_a_window_are_whole(tmp_path):
    sizes = [0, 1, 100_000, 262_144, 262_123, 700_000, 33, 8]
    entries = [Entry(bytes([n]) * size, None, n * MS) for n, size in enumerate(sizes * 5)]
    kestrel.write(tmp_path / "q", entries, "cars")
    assert [entry.payload for entry in entries] == [entry.payload for entry in kestrel.read(tmp_path / "q")]


# ------------------------------------------------------------------------------------------ writing


def test_open_transactions_are_written_as_a_rewrite_writes_them(tmp_path):
    """Newest first, each added and taken at once; 1.x named them and saved the last id after them."""
    entries = [ENTRY_HI._replace(extra={"xid": 3}), ENTRY_HI._replace(extra={"xid": 7}), ENTRY_HI]
    kestrel.write(tmp_path / "two", entries, "cars")
    taken = [HI + record(REMOVE_TENTATIVE_XID, xid=xid) for xid in (7, 3)]
    assert b"".join([*taken, HI]) == (tmp_path / "two" / "cars").read_bytes()
    kestrel.write(tmp_path / "one", entries, "cars", dialect="1")
    named = [record(ADD_XID, xid=xid, entry=ENTRY_HI) + record(REMOVE_TENTATIVE) for xid in (7, 3)]
    assert b"".join([*named, record(SAVE_XID, xid=7), HI]) == (tmp_path / "one" / "cars").read_bytes()
    for folder in ("one", "two"):
        assert list(kestrel.state(tmp_path / folder).open) == [3, 7]


def test_files_are_rotated_before_the_add_that_finds_them_too_long(tmp_path):
    kestrel.write(tmp_path / "q", [ENTRY_HI] * 5, "cars", layout="rotated", rotate_bytes=45, name_ms=9)
    assert tree(tmp_path / "q") == {"cars.9": HI * 2, "cars.10": HI * 2, "cars": HI}


def test_a_pack_and_fan_out_children_are_written(tmp_path):
    entries = [ENTRY_HI, ENTRY_HI._replace(payload=b"b"), ENTRY_HI._replace(payload=b"c")]
    kestrel.write(tmp_path / "q", entries, "cars", {"late": (1, (2,))}, layout="pack", name_ms=9)
    assert {"cars.9.pack", "cars+late.9.pack"} == set(tree(tmp_path / "q"))
    assert (names(tmp_path / "q"), names(tmp_path / "q", "cars+late")) == (["hi", "b", "c"], ["b"])


@pytest.mark.parametrize(
    ("entries", "options", "error"),
    [
        ([Entry(b"x", key=b"k")], {}, Unsafe),
        ([Entry(b"x", attempts=1)], {}, Unsafe),
        ([Entry(b"x", time_ns=1)], {"dialect": "starling"}, Unsafe),
        ([Entry(b"x", time_ns=1 << 90)], {}, TooLarge),
        ([Entry(b"x", extra={"xid": 1 << 31})], {}, TooLarge),
        ([Entry(b"x"), Entry(b"y", extra={"xid": 1})], {}, BadFormat),
        ([Entry(b"x")], {"queue": "a.b"}, BadFormat),
        ([Entry(b"x")], {"consumers": {"../x": (0, ())}}, BadFormat),
        ([Entry(b"x")], {"layout": "other"}, BadFormat),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path, entries, options, error):
    with pytest.raises(error):
        kestrel.write(tmp_path / "q", entries, **({"queue": "cars"} | options))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_queue_is_never_replaced(tmp_path):
    before = tree(journal(tmp_path, HI, cars_5=HI))
    with pytest.raises(Unsafe, match="nothing was changed"):
        kestrel.write(tmp_path, [ENTRY_HI], "cars")
    assert before == tree(tmp_path)


def test_a_repair_leaves_a_clean_journal_with_its_transactions_open(tmp_path):
    folder = journal(tmp_path / "q", add("b"), HI[:9], cars_5=add("a") + record(REMOVE_TENTATIVE_XID, xid=4) + b"\x7f")
    before = tree(folder)
    done = kestrel.repair(folder)
    assert before == tree(folder)
    assert (names(done.path), list(kestrel.state(done.path).open), kestrel.verify(done.path)) == (["a", "b"], [4], [])
    done = kestrel.repair(folder, in_place=True)
    assert names(folder) == ["a", "b"]
    assert before == tree(done.kept)


def test_a_journal_that_somebody_in_sight_has_open_is_not_repaired_in_place(tmp_path):
    """Its program goes on with the file it has open, wherever that is put; and nobody can know of all programs."""
    folder = journal(tmp_path / "q", add("b"), HI[:9], cars_5=add("a"))
    before = tree(folder)
    told = []

    def use(say, path):
        file = path.open("ab")
        hold_until_killed(say)
        file.close()

    for name in ("cars", "cars.5"):
        with Child(use, folder / name) as child:
            child.hear()
            with pytest.raises(Busy, match=f"process {child.pid} has .*/{name} open; nothing was changed"):
                kestrel.repair(folder, in_place=True, tell=told.append)
    assert (tree(folder), told) == (before, [])
    kestrel.repair(folder, in_place=True, tell=told.append)
    assert ["has no lock, and nobody can know who is at it" in sentence for sentence in told] == [True]


def test_a_program_that_starts_during_a_repair_in_place_keeps_its_journal(tmp_path, monkeypatch):
    folder = journal(tmp_path / "q", add("b"), HI[:9])
    before = tree(folder)
    children = []
    real = verify_module.write

    def use(say, path):
        file = path.open("ab")
        hold_until_killed(say)
        file.close()

    def write(*words):
        count = real(*words)
        children.append(Child(use, folder / "cars"))
        children[0].hear()
        return count

    monkeypatch.setattr(verify_module, "write", write)
    with pytest.raises(Busy):
        kestrel.repair(folder, in_place=True)
    assert (tree(folder), [path.name for path in tmp_path.iterdir()]) == (before, ["q"])
    children[0].kill()


def test_a_missing_queue_is_named_with_those_that_are_there(tmp_path):
    with pytest.raises(NotFound, match="cars"):
        kestrel.read(journal(tmp_path, HI), "bikes")


# ------------------------------------------------------------------------------------------ fixtures


def item(expected):
    def ns(value):
        return None if value is None else value * MS

    return bytes.fromhex(expected["data_hex"]), ns(expected["add_time_ms"]), ns(expected["expire_time_ms"])


def fields(entry):
    return entry.payload, entry.time_ns, entry.expires_ns


@pytest.mark.parametrize("extra", [None, {"segment": "cars"}])
def test_what_expires_within_the_first_millisecond_of_1970_does_not_become_what_never_expires(tmp_path, extra):
    """A zero means never: it is written as one millisecond, on the way of many items as on that of single ones."""
    entries = [Entry(b"first", None, 5 * MS), *(Entry(b"x", None, 7 * MS, ns, extra=extra) for ns in (0, 1, MS, None))]
    kestrel.write(tmp_path / "q", entries, "cars")
    found = [(entry.time_ns, entry.expires_ns) for entry in kestrel.read(tmp_path / "q")]
    assert found == [(5 * MS, None), (7 * MS, MS), (7 * MS, MS), (7 * MS, MS), (7 * MS, None)]


@pytest.mark.parametrize("field", ["time_ns", "expires_ns"])
def test_a_number_beyond_its_field_is_refused_behind_many_that_fit(tmp_path, field):
    entries = [Entry(b"x", None, MS), Entry(b"x", None, MS), Entry(b"x", None, MS)._replace(**{field: MS << 64})]
    with pytest.raises(TooLarge, match="opcode 2"):
        kestrel.write(tmp_path / "q", entries, "cars")
    assert list(tmp_path.iterdir()) == []


def test_a_child_that_has_other_items_than_its_parents_last_ones_has_no_place(tmp_path):
    """As many, and one of them different; or the same, after others of both were taken, put back and are open."""
    same = [Entry(b"%d" % number, None, number * MS) for number in range(6)]
    other = [*same[3:5], Entry(b"other", None, 5 * MS)]
    kestrel.write(tmp_path / "q", same, "cars")
    kestrel.write(tmp_path / "q", other, "cars+other")
    kestrel.write(tmp_path / "q", same[3:], "cars+last")
    with (tmp_path / "q/cars+last").open("ab") as file:  # its first item open, its second one put back
        file.write(kestrel.record(9, xid=1) + kestrel.record(9, xid=2) + kestrel.record(5, xid=2))
    assert kestrel.state(tmp_path / "q", "cars").consumers == {"last": (3, ()), "other": (None, ())}


@pytest.mark.parametrize("path", cases("kestrel"))
def test_recovery_is_what_the_document_says(path):
    it = Case(path)
    expected = it["recovery_by_document"]
    assert list(map(item, expected["items"])) == list(map(fields, kestrel.read(it.path, it["queue"])))
    state = kestrel.state(it.path, it["queue"])
    assert expected["transactions_open_at_the_end"] == list(state.open)
    assert it["replay_order"] == state.files
    broken = {one["file"]: one["valid_end"] for one in it["records"] if one["error"]}
    assert broken == {p.file: p.position for p in state.problems if "rest of this file" in p.reason}
    for child, kept in it.get("children", {}).items():
        assert list(map(item, kept["items"])) == list(map(fields, kestrel.read(it.path, child)))


@pytest.mark.parametrize("path", cases("kestrel"))
def test_as_program_recovers_what_the_real_program_recovered(path):
    it = Case(path)
    seen = it["observed_real_recovery"]
    if "setup_error" in seen:
        with pytest.raises(Corrupt, match="fails to start"):
            list(kestrel.read(it.path, it["queue"], as_program=True))
        return
    # The clock stood at about 1301000000000 + a few seconds; in `expired` it had moved on by ten.
    now = 1_301_000_011_000 * MS if it.name == "expired" else None
    delivered = [entry.payload for entry in kestrel.read(it.path, it["queue"], as_program=True, now_ns=now)]
    assert [bytes.fromhex(one["data_hex"]) for one in seen["items_in_delivery_order"]] == delivered


def encoded(one):
    op = {name: getattr(kestrel, name) for name in kestrel.__dict__ if name.isupper()}[one["op"]]
    if one["op"] == "STATE_DUMP":
        return record(op, xid=one["xid"], count=one["count"])
    if "data_hex" not in one:
        return record(op, xid=one.get("xid"))
    expires = one["expire_s"] * 1000 if "expire_s" in one else one["expire_time_ms"]
    entry = Entry(
        bytes.fromhex(one["data_hex"]), None, one.get("add_time_ms", 0) * MS, expires * MS if expires else None
    )
    return record(op, xid=one.get("xid"), entry=entry)


@pytest.mark.parametrize("path", cases("kestrel"))
def test_every_record_is_encoded_byte_for_byte(path):
    it = Case(path)
    for file in it["records"]:
        data = (it.path / file["file"]).read_bytes()
        assert data[: file["valid_end"]] == b"".join(map(encoded, file["records"]))


@pytest.mark.parametrize("name", ["rewritten", "crash_rewrite_after_delete"])
def test_a_rewrite_gives_the_real_programs_bytes(name, tmp_path):
    it = case("kestrel", name)
    kestrel.write(tmp_path / "q", kestrel.read(it.path, it["queue"]), "cars")
    assert (it.path / it["replay_order"][0]).read_bytes() == (tmp_path / "q" / "cars").read_bytes()


@pytest.mark.parametrize("path", cases("kestrel"))
@pytest.mark.parametrize("layout", ["current", "rotated", "pack"])
def test_a_round_trip_keeps_everything(path, layout, tmp_path):
    it = Case(path)
    dialect = "starling" if it.name == "old_2008_add" else "2"
    entries = formats.read(it.path, "kestrel", it["queue"])
    formats.write(tmp_path / "q", entries, "kestrel", "cars", layout=layout, rotate_bytes=100, dialect=dialect)
    again = list(formats.read(tmp_path / "q", "kestrel", "cars"))
    assert list(map(fields, kestrel.read(it.path, it["queue"]))) == list(map(fields, again))
    assert list(kestrel.state(it.path, it["queue"]).open) == list(kestrel.state(tmp_path / "q", "cars").open)
    assert kestrel.verify(tmp_path / "q", "cars") == []

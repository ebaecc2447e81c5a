"""Chronicle: what Java wrote is read as Java reads it, found by index, from both ends; damage is named."""

import hashlib
import json
import os
import struct
import tracemalloc
from contextlib import closing

import pytest
from chronicle_files import (
    DAY,
    END_MARK,
    EOF,
    META,
    NOT_READY,
    cq4,
    document,
    header,
    key,
    slots_of,
    table,
    version_4,
    word,
)
from format_fixtures import FIXTURES, place

from shmq import formats
from shmq.errors import BadFormat, Corrupt, NotFound, TooLarge
from shmq.formats import Entry, chronicle
from shmq.formats.chronicle import backward as backward_module
from shmq.formats.chronicle import words
from shmq.formats.chronicle.folder import Folder
from shmq.formats.chronicle.pages import is_page, parse_page
from shmq.formats.chronicle.store import Why
from shmq.formats.chronicle.table import read_table
from shmq.formats.chronicle.walk import Walk

FAST = "20231115F.cq4"

# ------------------------------------------------------------------------------------------ fixtures


class Case:
    """A queue that Java wrote, and what an independent decoder made of it."""

    def __init__(self, expected):
        self.path = expected.parent
        found = json.loads(expected.read_text())
        self.files = [each for each in found["files"] if each["file"].endswith(".cq4")]
        self.table = found.get("metadata")
        self.table_file = next((each for each in found["files"] if each["file"].endswith(".cq4t")), None)
        self.java = found.get("javaRead", {})
        self.messages = found.get("messages")
        if self.messages is None:
            self.messages = [
                {**document, "file": file["file"]}
                for file in self.files
                for document in file["docs"]
                if not document["meta"]
            ]


def queues(where=lambda _: True):
    """The parameters of a test over all queues that Java wrote, or one skipped that says why there are none."""
    found = sorted((FIXTURES / "chronicle").rglob("expected.json"))
    if not found:
        reason = f"no chronicle fixtures in {FIXTURES} (set SHMQ_FIXTURES)"
        return [pytest.param(None, id="no-fixtures", marks=pytest.mark.skip(reason=reason))]
    root = FIXTURES / "chronicle"
    return [pytest.param(path, id=str(path.parent.relative_to(root))) for path in found if where(Case(path))]


def plain(value):
    """A number as the fixtures have it."""
    return int(value["!int"]) if isinstance(value, dict) else value


def said(entry):
    """A message as the fixtures say it, as far as an entry knows."""
    return {
        "index": f"{entry.index & (1 << 64) - 1:x}",
        "file": entry.extra["file"],
        "len": len(entry.payload),
        "payload": hashlib.sha256(entry.payload).hexdigest(),
    }


def wanted(message):
    payload = message.get("sha256") or hashlib.sha256(bytes.fromhex(message["hex"])).hexdigest()
    return {"index": message["index"], "file": message["file"], "len": message["len"], "payload": payload}


@pytest.mark.parametrize("path", queues())
def test_messages_are_those_that_java_wrote(path):
    it = Case(path)
    assert formats.detect(it.path) == "chronicle"
    entries = list(formats.read(it.path))
    assert list(map(wanted, it.messages)) == list(map(said, entries))
    assert entries == [entry for found in formats.lists(it.path) for entry in found]
    cycles = {file["file"]: file["cycle"] for file in it.files if "cycle" in file}
    assert all(entry.extra["cycle"] == cycles[entry.extra["file"]] for entry in entries if cycles)
    state = formats.state(it.path)
    ends = (entries[0].index, entries[-1].index) if entries else (None, None)
    assert (state.messages, state.first, state.last) == (len(entries), *ends)


@pytest.mark.parametrize("path", queues(lambda it: it.java))
def test_as_program_delivers_what_javas_tailer_delivered(path):
    it = Case(path)
    entries = list(formats.read(it.path, as_program=True))
    assert it.java["count"] == len(entries)
    assert list(map(wanted, it.messages))[: len(entries)] == list(map(said, entries))
    if entries:
        assert it.java["firstIndex"] == said(entries[0])["index"]
    assert it.java["rollCycle"] == chronicle.settings(it.path).roll_cycle.name
    assert formats.state(it.path, as_program=True).messages == len(entries)


@pytest.mark.parametrize("path", queues())
def test_headers_ends_and_documents_are_those_of_an_independent_decoder(path):
    it = Case(path)
    folder = Folder(it.path)
    assert [file["file"] for file in it.files] == [name for _, name in folder.listing()]
    for file, store in zip(it.files, folder.stores(), strict=True):
        check_header(file, store)
        documents = list(store.documents())[1:]
        check_end(file["end"], store.end)
        expected = file.get("docs")
        if expected is None:
            expected = file["metaDocs"] + [each for each in it.messages if each["file"] == file["file"]]
        expected = sorted((each["pos"], each["len"]) for each in expected)
        assert expected == [(each.position, each.word & words.LENGTH) for each in documents]
        for meta in file.get("metaDocs", [each for each in file.get("docs", []) if each["meta"]]):
            (document,) = (each for each in documents if each.position == meta["pos"])
            assert f"{document.word:08x}" == meta["word"]
            check_page(meta, store)
        if "cycle" in file:
            assert (file["cycle"], file["rollCycle"]) == (store.cycle, store.roll.name)
            assert file["cycleShift"] == store.roll.shift


def check_header(file, store):
    header, expected = store.header, file["header"]
    indexing = expected["indexing"]["value"]
    assert (indexing["indexCount"], indexing["indexSpacing"]) == (header.index_count, header.index_spacing)
    assert file["aligned4"] == header.aligned
    read = store.source.read
    assert plain(indexing["index2Index"]) == words.LONG.unpack(read(header.index2index_at, 8))[0]
    assert plain(indexing["lastIndex"]) == words.LONG.unpack(read(header.next_indexed_at, 8))[0]
    position = expected["writePosition"]
    if isinstance(position, dict) and position.get("!i64array"):
        assert position["valuesAt"] == header.write_position_at == header.sequence_at - 8
        values = [plain(each) for each in position["nonZeroPrefix"]]
        assert values == [words.LONG.unpack(read(position["valuesAt"] + 8 * n, 8))[0] for n in range(len(values))]
    else:
        assert plain(position) == words.LONG.unpack(read(header.write_position_at, 8))[0]
    if "roll" in expected:
        assert header.version == 4
        roll = expected["roll"]["value"]
        assert (roll["length"], roll["format"], roll["epoch"]) == header.roll[:3]
    decoded = file.get("decodedWritePosition")
    if decoded is not None:
        at, sequence = store.written()
        assert decoded["pos"] == at
        # The pair says a sequence only where its halves belong together.
        belongs = at and decoded["posLowBits"] == at & ((1 << (64 - header.shift)) - 1)
        assert sequence == (decoded["seq"] if belongs else None)


def check_end(expected, end):
    why = f"{end.why.value} {end.word:08x}" if end.why is Why.NOT_READY else end.why.value
    assert (expected["at"], expected["why"]) == (end.at, why)


def check_page(meta, store):
    value = meta.get("value")
    page = store.source.read(meta["pos"], 4 + meta["len"])
    names = {"index2index", "index"} & set(value if isinstance(value, dict) else ())
    assert bool(names) == is_page(page)
    for name in names:
        found = parse_page(page, meta["pos"], name)
        expected = value[name]
        assert (expected["capacity"], expected["used"], expected["valuesAt"]) == (
            found.capacity,
            found.used,
            found.slots_at,
        )


@pytest.mark.parametrize("path", queues(lambda it: it.table or it.table_file))
def test_the_table_is_that_of_an_independent_decoder(path):
    it = Case(path)
    found = formats.chronicle.settings(it.path).table
    assert found.problems == []
    if it.table is None:
        entries = {key: value for each in it.table_file["docs"] for key, value in each["value"].items()}
        assert [each["pos"] for each in it.table_file["docs"]] == [each.position for each in found.entries.values()]
        assert found.end == it.table_file["end"]["at"]
    else:
        entries = it.table["entries"]
        positions = [[each.position, key] for key, each in found.entries.items()]
        assert it.table["entryPositions"] == positions
        roll = it.table["header"]["metadata"]["value"]["roll"]["value"]
        assert (roll["length"], roll["format"], plain(roll["epoch"])) == found.roll[:3]
    assert {key: plain(value) for key, value in entries.items()} == {k: e.value for k, e in found.entries.items()}
    data = (it.path / found.name).read_bytes()
    for entry in found.entries.values():
        assert entry.value == words.LONG.unpack_from(data, entry.address)[0]
    assert read_table(it.path, found.name) == found
    tailers = {
        key.removeprefix("index."): (plain(value), ())
        for key, value in entries.items()
        if key.startswith("index.") and not ("replicated:" in key and key.endswith((".version", ".lock")))
    }
    assert tailers == formats.consumers(it.path) == formats.state(it.path).consumers


@pytest.mark.parametrize("path", queues())
def test_every_message_is_found_by_its_index_forward_and_backward(path):
    it = Case(path)
    entries = list(formats.read(it.path))
    assert entries[::-1] == list(formats.read(it.path, backward=True))
    for at in {*range(0, len(entries), 7), *range(max(0, len(entries) - 3), len(entries))}:
        index = entries[at].index
        assert entries[at:] == list(formats.read(it.path, index=index))
        assert entries[at::-1] == list(formats.read(it.path, index=index, backward=True))


@pytest.mark.parametrize("path", queues())
def test_users_meta_data_come_between_the_messages_when_asked_for(path):
    it = Case(path)
    documents = [
        (each["file"], each["pos"], "index" not in each)
        for each in [
            *it.messages,
            *({**meta, "file": file["file"]} for file in it.files for meta in file.get("metaDocs", ())),
        ]
        if not {"index2index", "index"} & set(each["value"] if isinstance(each.get("value"), dict) else ())
    ]
    found = [
        (entry.extra["file"], entry.index is None, entry.extra.get("meta", False))
        for entry in formats.read(it.path, meta=True)
    ]
    assert [(file, meta, meta) for file, _, meta in sorted(documents)] == found


@pytest.mark.parametrize(
    ("name", "file", "count", "spacing"),
    [("roll", "20231116T4.cq4", 32, 4), ("index-full", "20231115T1.cq4", 8, 1), ("empty-cycle", FAST, 4096, 256)],
)
def test_the_files_made_by_these_tests_are_javas(name, file, count, spacing):
    folder = FIXTURES / "chronicle" / "given" / name
    if not folder.is_dir():
        pytest.skip(f"no fixture chronicle/{name} in {FIXTURES} (set SHMQ_FIXTURES)")
    payloads = [entry.payload for entry in chronicle.read(folder) if entry.extra["file"] == file]
    end = END_MARK if name == "roll" else bytes(8)
    made, real = cq4(payloads, count, spacing, end=end), (folder / file).read_bytes()
    assert made == real[: len(made)]


# ------------------------------------------------------------------------------------------ by hand


def test_a_file_derived_by_hand_is_read(tmp_path):
    """Words, lengths and addresses as the format's page has them; the cycle is the day of the name."""
    place(tmp_path, {FAST: cq4([b"one", b"", b"three"], 4096, 256), "metadata.cq4t": table({"index.a": DAY << 32 | 1})})
    extra = {"file": FAST, "cycle": DAY}
    entries = list(chronicle.read(tmp_path))
    # An empty payload needs a word of 0, which is no message: everything from it on is not there.
    assert entries == [Entry(b"one", DAY << 32, extra=extra)]
    place(tmp_path, {FAST: cq4([b"one", b"\x8f", b"three"], 4096, 256)})
    entries = list(chronicle.read(tmp_path))
    assert [(entry.index - (DAY << 32), entry.payload) for entry in entries] == [
        (0, b"one"),
        (1, b"\x8f"),
        (2, b"three"),
    ]
    with closing(Folder(tmp_path).store(DAY, FAST)) as store:
        it = store.ready()
        assert (it.end, it.aligned) == (200, True)
        addresses = (it.write_position_at, it.sequence_at, it.index2index_at, it.next_indexed_at)
        assert addresses == (0x40, 0x48, 0x98, 0xB0)
    assert formats.consumers(tmp_path) == {"a": (DAY << 32 | 1, ())}
    assert formats.verify(tmp_path) == []


@pytest.mark.parametrize(
    ("end", "why", "passed"),
    [
        (END_MARK, Why.EOF, True),
        (word(EOF), Why.EOF, True),  # version 4 writes no letters behind it
        (word(EOF) + b"anything", Why.EOF, True),
        (word(EOF | 1) + bytes(8), Why.NOT_READY, False),
        (word(NOT_READY) + bytes(8), Why.NOT_READY, False),
        (word(NOT_READY | 0x123) + b"half a message", Why.NOT_READY, False),
        (word(NOT_READY | 5) + b"hello", Why.NOT_READY, False),
        (bytes(8), Why.ZERO, False),
        (b"", Why.ZERO, False),
        (b"\xc0", Why.ZERO, False),
        (word(9999) + b"torn", Why.TORN, False),
        (word(META | 9999) + b"torn", Why.TORN, False),
    ],
)
def test_a_file_ends_at_its_mark_and_java_waits_at_any_other_end(tmp_path, end, why, passed):
    """Only the exact word is the mark. Without it Java's tailer waits; here the messages behind are not kept back."""
    place(tmp_path, {"20231115F.cq4": cq4([b"a"], end=end), "20231116F.cq4": cq4([b"b"]), "metadata.cq4t": table()})
    assert [entry.payload for entry in chronicle.read(tmp_path)] == [b"a", b"b"]
    assert [entry.payload for entry in chronicle.read(tmp_path, backward=True)] == [b"b", b"a"]
    assert [entry.payload for entry in chronicle.read(tmp_path, as_program=True)] == [b"a", b"b"][: 1 + passed]
    with closing(Folder(tmp_path).store(DAY, FAST)) as store:
        assert list(store.documents())
        assert store.end.why is why
    state = formats.state(tmp_path)
    assert [problem.file for problem in state.problems] == ([] if passed else ["20231115F.cq4"])
    if not passed:
        assert state.problems[0].position == store.end.at
        with pytest.raises(Corrupt, match="is whole"):
            list(chronicle.read(tmp_path, strict=True))
        assert [problem.file for problem in formats.verify(tmp_path)][:1] == ["20231115F.cq4"]


def test_a_file_without_any_message_keeps_javas_tailer_too_and_a_closed_one_does_not(tmp_path):
    place(tmp_path, {f"202311{15 + n}F.cq4": cq4(payloads) for n, payloads in enumerate([[], [b"a"], [b"b"]])})
    assert [entry.payload for entry in chronicle.read(tmp_path, as_program=True)] == []
    assert [entry.payload for entry in chronicle.read(tmp_path)] == [b"a", b"b"]
    place(tmp_path, {FAST: cq4([], end=END_MARK)})
    assert [entry.payload for entry in chronicle.read(tmp_path, as_program=True)] == [b"a"]


@pytest.fixture
def days(tmp_path):
    """Three days: 3 messages, 2 and 4; the 17th of November is missing."""
    files = {
        "20231115T1.cq4": cq4([b"a0", b"a1", b"a2"], end=END_MARK),
        "20231116T1.cq4": cq4([b"b0", b"b1"], end=END_MARK),
        "20231118T1.cq4": cq4([b"c0", b"c1", b"c2", b"c3"]),
        "metadata.cq4t": table(
            {"index.Late": (DAY + 1) << 32 | 1, "index.new": 0, "index.end": (DAY + 3) << 32 | 4},
            pattern=b"yyyyMMdd'T1'",
        ),
    }
    return place(tmp_path, files)


ALL = ["a0", "a1", "a2", "b0", "b1", "c0", "c1", "c2", "c3"]


@pytest.mark.parametrize(
    ("cycle", "sequence", "forward", "backward"),
    [
        (0, 0, 0, 0),
        (0, 1, 1, 2),
        (0, 2, 2, 3),
        (0, 3, 3, 3),  # behind the last of its cycle: what comes next is in the next one
        (0, 99, 3, 3),
        (1, 0, 3, 4),
        (1, 1, 4, 5),
        (1, 2, 5, 5),
        (2, 0, 5, 5),  # a cycle without a file
        (2, 7, 5, 5),
        (3, 3, 8, 9),
        (3, 4, 9, 9),
        (3, 99, 9, 9),
        (4, 0, 9, 9),
        (-1, 0, 0, 0),
        (-1, 5, 0, 0),
    ],
)
def test_reading_begins_at_exactly_an_index_or_at_what_comes_next(days, cycle, sequence, forward, backward):
    index = (DAY + cycle) << 32 | sequence
    for name in ("index", "start"):
        found = [entry.payload.decode() for entry in chronicle.read(days, **{name: index})]
        assert found == ALL[forward:]
    backward = backward + 1 if (cycle, sequence) == (0, 0) else backward
    found = [entry.payload.decode() for entry in chronicle.read(days, index=index, backward=True)]
    assert found == ALL[:backward][::-1]


def test_reading_begins_at_a_cycle_or_at_the_one_that_holds_a_time(days):
    def found(**options):
        return [entry.payload.decode() for entry in chronicle.read(days, **options)]

    assert found(cycle=DAY + 1) == ALL[3:]
    assert found(cycle=DAY + 2) == found(cycle=DAY + 3) == ALL[5:]
    assert found(cycle=DAY + 1, backward=True) == ALL[:5][::-1]
    second = 1_000_000_000
    begin = (DAY + 1) * 86_400 * second
    assert found(time_ns=begin - 1) == ALL
    assert found(time_ns=begin) == found(time_ns=begin + 86_400 * second - 1) == ALL[3:]
    assert found(time_ns=begin + 86_400 * second) == ALL[5:]
    assert found(time_ns=begin, backward=True) == ALL[:5][::-1]
    assert found(time_ns=-1) == ALL


def test_reading_begins_where_a_named_tailer_stands(days):
    def found(name, **options):
        return [entry.payload.decode() for entry in chronicle.read(days, consumer=name, **options)]

    assert found("Late") == found("late") == ALL[4:]
    assert found("Late", backward=True) == ALL[:5][::-1]
    assert found("new") == ALL
    assert found("end") == []
    with pytest.raises(NotFound, match="no named tailer 'other'"):
        found("other")
    with pytest.raises(BadFormat, match="give one"):
        found("late", index=5)
    with pytest.raises(BadFormat, match="give one"):
        chronicle.read(days, index=5, start=5)


def test_what_cannot_be_asked_is_refused(days):
    with pytest.raises(BadFormat, match="backward and follow"):
        chronicle.read(days, backward=True, follow=True)
    with pytest.raises(BadFormat, match="backward and show"):
        chronicle.read(days, backward=True, meta=True)
    with pytest.raises(NotFound, match="no Chronicle queue"):
        chronicle.read(place(days / "x", {"y": b""}))
    with pytest.raises(NotFound, match="no such directory"):
        chronicle.read(days / "z")
    with pytest.raises(BadFormat, match="not a directory"):
        chronicle.read(days / "x", "y")


def test_one_file_is_a_queue_of_one_cycle_and_a_folder_holds_queues(days):
    (middle,) = (name for name in days.iterdir() if name.name == "20231116T1.cq4")
    assert formats.detect(middle) == "chronicle"
    assert [entry.payload for entry in formats.read(middle)] == [b"b0", b"b1"]
    assert len(list(formats.read(days / "metadata.cq4t"))) == len(ALL)
    assert formats.verify(middle) == []
    place(days / "more" / "inner", {FAST: cq4([b"x"])})
    assert formats.queues(days / "more", "chronicle") == ["inner"]
    assert len(list(formats.read(days / "more", "chronicle", "inner"))) == 1
    assert len(list(formats.read(days / "more", "chronicle"))) == 1


# ------------------------------------------------------------------------------------------ version 4


@pytest.mark.parametrize("pair", [True, False])
def test_documents_of_version_4_follow_without_gaps_and_its_headers_say_the_cycle(tmp_path, pair):
    payloads = [b"x" * n for n in range(1, 40)]
    place(tmp_path, {"20231115.cq4": version_4(payloads, word(EOF), pair), "20231116.cq4": version_4([b"next"])})
    entries = list(chronicle.read(tmp_path))
    assert [entry.payload for entry in entries] == [*payloads, b"next"]
    assert [entry.index for entry in entries[-2:]] == [DAY << 32 | 38, (DAY + 1) << 32]
    assert entries[::-1] == list(chronicle.read(tmp_path, backward=True))
    assert entries[20:] == list(chronicle.read(tmp_path, index=entries[20].index))
    assert chronicle.settings(tmp_path).roll_cycle.name == "DAILY"
    assert formats.verify(tmp_path) == []


def test_an_epoch_in_a_header_of_version_4_counts(tmp_path):
    data = version_4([b"a"]).replace(b"\xc5epoch\x00", b"\xc5epoch\x01")
    place(tmp_path, {"20231115.cq4": data})
    assert chronicle.settings(tmp_path).epoch == 1


# ------------------------------------------------------------------------------------------ headers and tables


@pytest.mark.parametrize(
    "data_format", [b"\xa1\x01", b"\x01", b"\xa5\x01\x00", b"\x90\x00\x00\x80\x3f", b"\x8f\xa1\x01"]
)
def test_numbers_of_a_header_may_have_any_code(tmp_path, data_format):
    """5.20 wrote the number in the code itself; Java writes large longs as floats where they come back."""
    data = header(data_format=data_format)
    data += document(b"aligned, or not") + document(b"x")
    place(tmp_path, {FAST: data + bytes(8)})
    assert [entry.payload for entry in chronicle.read(tmp_path)] == [b"aligned, or not", b"x"]


def test_files_that_are_no_cycle_are_not_read(tmp_path):
    """A file made early is not there before it is renamed, and one that was moved aside has gone."""
    files = {
        FAST: cq4([b"a"], end=END_MARK),
        "20231116F.precreated": cq4([b"early"]),
        "20231116F.cq4-1700000000000.discard": cq4([b"aside"]),
        "metadata.cq4t": table(),
        "20231399F.cq4": cq4([b"no such day"]),
        "notes.txt": b"",
    }
    place(tmp_path, files)
    assert [entry.payload for entry in chronicle.read(tmp_path)] == [b"a"]
    assert [problem.file for problem in formats.state(tmp_path).problems] == ["20231399F.cq4"]
    assert [problem.file for problem in formats.verify(tmp_path)] == ["20231399F.cq4"]


@pytest.mark.parametrize(
    ("name", "cycle"),
    [
        ("20231115-2210H.cq4", "HALF_HOURLY"),
        ("20231115H.cq4", "HUGE_DAILY"),
        ("20231115-2210X.cq4", "TEN_MINUTELY"),
        ("20231115X.cq4", "XLARGE_DAILY"),
        ("20231115-22F.cq4", "FAST_HOURLY"),
        ("20231115-22.cq4", "HOURLY"),
        ("20231115.cq4", "DAILY"),
        ("20231115-221500T4.cq4", "TEST4_SECONDLY"),
    ],
)
def test_without_a_table_the_name_tells_the_cycle(tmp_path, name, cycle):
    if cycle == "HALF_HOURLY":
        name = "20231115-2200H.cq4"
    place(tmp_path, {name: cq4([b"a"])})
    (entry,) = chronicle.read(tmp_path)
    settings = chronicle.settings(tmp_path)
    assert (settings.roll_cycle.name, settings.table) == (cycle, None)
    assert settings.roll_cycle.file_name(settings.roll_cycle.split(entry.index)[0]) == name
    (problem,) = formats.verify(tmp_path)
    assert problem.file == "metadata.cq4t"
    assert formats.consumers(tmp_path) == {}


def test_a_roll_cycle_of_somebodys_own_is_read_by_its_pattern(tmp_path):
    place(tmp_path, {"2023-11-15_06.cq4": cq4([b"a"]), "metadata.cq4t": table((), 21_600_000, b"yyyy-MM-dd_HH")})
    (entry,) = chronicle.read(tmp_path)
    assert entry.index == (DAY * 4 + 1) << 32
    for unknown in (b"yyyy-QQQ", b"MMdd", b"yyyyMMddyy"):
        place(tmp_path, {"metadata.cq4t": table((), 21_600_000, unknown)})
        with pytest.raises(BadFormat, match="pattern unknown"):
            chronicle.read(tmp_path)


def test_a_broken_table_is_a_problem_and_the_names_tell_the_cycle(tmp_path):
    place(tmp_path, {FAST: cq4([b"a"]), "metadata.cq4t": b"\0" * 100})
    assert [entry.payload for entry in chronicle.read(tmp_path)] == [b"a"]
    (problem,) = formats.state(tmp_path).problems
    assert problem[:2] == ("metadata.cq4t", 0)
    with pytest.raises(Corrupt, match="no header of a table"):
        list(chronicle.read(tmp_path, strict=True))


def test_keys_that_are_none_are_problems_and_the_others_count(tmp_path):
    data = table({"index.a": 5})[:-256]
    data += document(b"\xb9\x01x\xe2no") + document(b"\xb9\xffx") + document(b"user's meta-data", META)
    data += key("INDEX.A", 6, len(data))
    for name, value in {
        "index.b": 7,
        "index.replicated:r": 8,
        "index.replicated:r.version": 9,
        "index.x.lock": 1,
    }.items():
        data += key(name, value, len(data))
    data += key("index.replicated:r.lock", -(1 << 63), len(data))
    place(tmp_path, {"metadata.cq4t": data})
    found = chronicle.settings(tmp_path).table
    assert found.tailers() == {"a": (5, ()), "b": (7, ()), "replicated:r": (8, ()), "x.lock": (1, ())}
    assert [problem.reason.split(":")[0].split(";")[0] for problem in found.problems] == [
        "a document that is not a key with a long",
        "a key that cannot be read",
        "the key 'INDEX.A' is here again",
    ]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"listing.highestCycle": DAY + 1}, "the files say"),
        ({"listing.lowestCycle": 3}, "the files say"),
        ({"chronicle.write.lock": 1 << 22 | 1}, "gone"),
        ({"chronicle.append.lock": 0x7FFFFFFF}, "gone"),
        ({"index.t": DAY << 32 | 3}, "its cycle has 2 messages"),
        ({"index.t": (DAY - 1) << 32}, "no file of that cycle"),
        ({"listing.highestCycle": DAY, "listing.lowestCycle": DAY}, None),
        ({"chronicle.write.lock": -(1 << 63)}, None),
        ({"chronicle.write.lock": os.getpid()}, None),
        ({"index.t": DAY << 32 | 2, "index.u": 0}, None),
    ],
)
def test_a_table_that_does_not_fit_the_files_is_named(tmp_path, keys, reason):
    place(tmp_path, {FAST: cq4([b"a", b"b"]), "metadata.cq4t": table(keys)})
    problems = formats.verify(tmp_path)
    assert len(problems) == (reason is not None)
    for problem in problems:
        assert problem.file == "metadata.cq4t"
        assert reason in problem.reason
        (value,) = keys.values()
        assert table(keys)[problem.position :].startswith(struct.pack("<q", value))


# ------------------------------------------------------------------------------------------ the index


def changed(data, *changes):
    """*data* with (position, 64-bit number) put in."""
    data = bytearray(data)
    for at, number in changes:
        struct.pack_into("<q", data, at, number)
    return bytes(data)


FIFTY = [b"message %d" % n for n in range(50)]
INDEXED = cq4(FIFTY)
ROOT = 200
PAGE = struct.unpack_from("<q", INDEXED, slots_of(INDEXED, ROOT))[0]
SLOTS = slots_of(INDEXED, PAGE)
ROOT_SLOTS = slots_of(INDEXED, ROOT)
SECOND = struct.unpack_from("<q", INDEXED, ROOT_SLOTS + 8)[0]
"""The second page of the index: of messages 8 to 15."""


@pytest.mark.parametrize(
    "changes",
    [
        [(SLOTS + 8 * 3, 0)],  # a hole, which is legal
        [(SLOTS + 8 * n, 0) for n in range(8)],
        [(ROOT_SLOTS + 8, 0)],
        [(ROOT_SLOTS + 8 * n, 0) for n in range(8)],
        [(0x98, 0)],  # no index at all
        [(SLOTS + 8 * 3, 1 << 62)],
        [(SLOTS + 8 * 3, -8)],
        [(SLOTS + 8 * 3, 4)],
        [(SLOTS + 8 * 3, PAGE)],
        [(SLOTS + 8 * 3, len(INDEXED) - 4)],
        [(SLOTS + 8 * n, SLOTS) for n in range(8)],
        [(SLOTS - 8, 1 << 60)],  # used
        [(SLOTS - 16, 1 << 60)],  # capacity
        [(SLOTS - 16, 16)],
        [(ROOT_SLOTS + 8, PAGE)],  # two pages that are one
        [(ROOT_SLOTS + 8, ROOT)],
        [(ROOT_SLOTS + 8, 1 << 62)],
        [(ROOT_SLOTS + 8, -1)],
        [(ROOT_SLOTS + 8 * n, PAGE) for n in range(8)],
        [(ROOT_SLOTS, SECOND), (ROOT_SLOTS + 8, PAGE)],  # back
        [(0x98, PAGE)],
        [(0x98, 1 << 62)],
        [(0x98, -1)],
        [(0x98, 3)],
        [(0x40, 208), (0x48, 5)],
        [(0x40, -1)],
        [(0x40, 1 << 62)],
        [(0x48, (struct.unpack_from("<q", INDEXED, 0x40)[0] << 32) + 7)],  # as Java's own may lie
    ],
)
def test_messages_are_found_in_spite_of_an_index_that_is_wrong(tmp_path, changes):
    """Slots and pages that lead back, round in circles or out of the file are holes; the scan goes on from before."""
    place(tmp_path, {FAST: changed(INDEXED, *changes), "metadata.cq4t": table()})
    entries = list(chronicle.read(tmp_path))
    assert [entry.payload for entry in entries] == FIFTY
    for at in (0, 2, 3, 4, 7, 8, 9, 15, 16, 40, 49):
        assert entries[at:] == list(chronicle.read(tmp_path, index=entries[at].index)), at
        assert entries[at::-1] == list(chronicle.read(tmp_path, index=entries[at].index, backward=True)), at
    assert entries[::-1] == list(chronicle.read(tmp_path, backward=True))
    harmless = all(value == 0 for _, value in changes)
    assert bool(formats.verify(tmp_path)) != harmless


@pytest.mark.parametrize("number", [1, 2, 5, 12])
def test_a_slot_that_leads_to_a_message_beside_its_own_is_found_out(tmp_path, number):
    """Java leaves such slots when it rolls back in a new file beside another appender, and then jumps there."""
    data = cq4(FIFTY, 8, 4)
    right = data.index(b"message %d" % (4 * number)) - 4
    page = struct.unpack_from("<q", data, slots_of(data, ROOT) + 8 * (number // 8))[0]
    data = changed(data, (slots_of(data, page) + 8 * (number % 8), right + 4 + len(document(b"x" * 9)) - 4))
    place(tmp_path, {FAST: data, "metadata.cq4t": table()})
    entries = list(chronicle.read(tmp_path))
    for at in range(50):
        assert next(chronicle.read(tmp_path, index=entries[at].index)) == entries[at]
    assert entries[::-1] == list(chronicle.read(tmp_path, backward=True))
    assert any(
        f"for message {4 * number}, which is at {right}" in problem.reason for problem in formats.verify(tmp_path)
    )


def test_what_the_writers_place_covers_is_read_once(tmp_path, preads):
    place(tmp_path, {FAST: cq4([b"x" * 60] * 10_000)})
    preads.clear()
    assert sum(1 for _ in chronicle.read(tmp_path)) == 10_000
    windows = [at for at, nbytes in preads if nbytes > 4096]
    assert len(windows) <= len(set(windows)) + 2
    assert len(preads) < 3 * 640_000 // 65_536 + 20


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((SLOTS + 8 * 3, SECOND), "for message 3, which is at"),
        ((ROOT_SLOTS + 8 * 7, SECOND), "leads to a page for message 56, and there are 50"),
        ((0x40, 0), "writePosition is 0, and the last message is at"),
        ((0xB0, 64), "lastIndex is 64"),
        ((0xB0, -1), "lastIndex is -1"),
        ((SLOTS - 8, 3), "3 slots are said to be used, and number 7 is filled"),
    ],
)
def test_verify_says_what_of_the_index_is_wrong(tmp_path, change, reason):
    place(tmp_path, {FAST: changed(INDEXED, change), "metadata.cq4t": table()})
    assert any(reason in problem.reason for problem in formats.verify(tmp_path))


@pytest.fixture
def preads(monkeypatch):
    """Every read of a file: (position, bytes)."""
    seen = []

    def pread(fd, nbytes, position):
        seen.append((position, nbytes))
        return real(fd, nbytes, position)

    real = os.pread
    monkeypatch.setattr(os, "pread", pread)
    return seen


def test_a_look_up_costs_the_same_in_a_queue_of_any_size(tmp_path, preads):
    """Header, index2index, a page, and at most a spacing's messages: reads are counted, and their bytes."""
    costs = {}
    for many in (1_000, 20_000):
        folder = place(tmp_path / str(many), {FAST: cq4([b"%08d" % n for n in range(many)], 128, 8)})
        first = next(chronicle.read(folder)).index
        for sequence in (5, many // 2 + 7, many - 1):
            preads.clear()
            entry = next(chronicle.read(folder, index=first + sequence))
            assert entry.payload == b"%08d" % sequence
            costs[many, sequence] = len(preads)
            assert sum(nbytes for at, nbytes in preads) < 200_000
    assert max(costs.values()) <= 17
    assert costs[20_000, 5] <= costs[1_000, 5]
    assert costs[20_000, 19_999] <= costs[1_000, 999]


def test_more_messages_than_the_index_can_hold_are_found(tmp_path):
    """The 65th of 64: Java's own index would wrap round and lead to the first."""
    place(tmp_path, {"20231115T1.cq4": cq4([b"%d" % n for n in range(80)])})
    entries = list(chronicle.read(tmp_path))
    assert len(entries) == 80
    for at in (63, 64, 65, 79):
        assert entries[at:] == list(chronicle.read(tmp_path, index=entries[at].index))


# ------------------------------------------------------------------------------------------ sizes


@pytest.mark.parametrize("index", [True, False])
def test_messages_of_any_size_come_whole_from_both_ends(tmp_path, index):
    sizes = [1, 3, 100_000, 65_536 - 4, 65_536, 65_532 - 208, 700_000, 2, 5, 131_072, 1] + [33] * 2500 + [70_000] * 3
    payloads = [bytes((n % 251,)) * size for n, size in enumerate(sizes)]
    place(tmp_path, {FAST: cq4(payloads, 64, 16, index=index, meta={3: [b"m" * 70_000], 9: [b"", b"u"]})})
    assert [entry.payload for entry in chronicle.read(tmp_path)] == payloads
    assert [entry.payload for entry in chronicle.read(tmp_path, backward=True)] == payloads[::-1]
    metas = [entry.payload for entry in chronicle.read(tmp_path, meta=True) if entry.index is None]
    assert metas == [b"m" * 70_000, b"", b"u"]


@pytest.mark.parametrize("size", [100_000, 20])
def test_a_payload_over_the_callers_limit_is_refused_by_name(tmp_path, size):
    place(tmp_path, {FAST: cq4([b"a", b"x" * size, b"b" * 200])})
    entries = chronicle.read(tmp_path, max_payload=size - 1)
    assert next(entries).payload == b"a"
    with pytest.raises(TooLarge, match=f"max_payload is {size - 1}"):
        next(entries)
    assert next(chronicle.read(tmp_path, index=DAY << 32 | 1, max_payload=size)).payload == b"x" * size


@pytest.mark.parametrize("index", [True, False])
def test_backward_a_file_is_cut_into_stretches_and_those_again(tmp_path, monkeypatch, index):
    monkeypatch.setattr(backward_module, "_STRETCH", 500)
    monkeypatch.setattr(backward_module, "_CUTS", 4)
    payloads = [b"%020d" % n for n in range(400)]
    place(tmp_path, {FAST: cq4(payloads, 32, 8, index=index)})
    with closing(backward_module.Backward(Folder(tmp_path), (DAY, 390))) as walk:
        found = list(walk.lists())
    assert [entry.payload for each in found for entry in each] == payloads[390::-1]
    assert max(map(len, found)) <= 2 * 500 // 24 + 1


@pytest.mark.parametrize("index", [True, False])
def test_memory_is_flat_from_both_ends(tmp_path, index):
    peaks = {}
    for many in (1_000, 10_000):
        place(tmp_path / str(many), {FAST: cq4([b"x" * 40] * many, 128, 8, index=index)})
        for backward in (False, True):
            tracemalloc.start()
            assert many == sum(1 for _ in chronicle.read(tmp_path / str(many), backward=backward))
            peaks[many, backward] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    for backward in (False, True):
        assert peaks[10_000, backward] < peaks[1_000, backward] + (1 << 20)


# ------------------------------------------------------------------------------------------ beside a writer


def test_a_message_published_while_its_window_is_read_comes_whole(tmp_path, monkeypatch):
    """
    A read copies bytes one after the other, and not necessarily in order: the word may be newer than the payload.
    What the writer's own place does not cover yet is read again, after its word.
    """
    data = cq4([b"old", b"new payload"])
    at = data.index(b"new payload")
    place(tmp_path, {FAST: changed(data, (0x40, data.index(b"old") - 4))})
    real, torn = os.pread, []

    def pread(fd, nbytes, position):
        found = real(fd, nbytes, position)
        if not torn and position <= at and position + len(found) >= at + 11:
            torn.append(position)
            found = found[: at - position] + bytes(11) + found[at - position + 11 :]
        return found

    monkeypatch.setattr(os, "pread", pread)
    assert [entry.payload for entry in chronicle.read(tmp_path)] == [b"old", b"new payload"]
    assert torn


@pytest.mark.parametrize(
    "shown",
    [
        [("15", "18"), ("15", "16", "17", "18")],  # the first listing shows what came last, and not what came before
        [("15",), ("15", "18"), ("15", "16", "17", "18")],  # the second one does
    ],
)
def test_a_later_file_in_a_listing_does_not_hide_an_earlier_one(tmp_path, monkeypatch, shown):
    """A listing is not made at one moment: files that come meanwhile are in it or not, each for itself."""
    place(tmp_path, {f"202311{day}F.cq4": cq4([b"%d" % day], end=END_MARK) for day in (15, 16, 17, 18)})
    folder = Folder(tmp_path)
    left = iter(shown)

    def names():
        return [f"202311{day}F.cq4" for day in next(left, shown[-1])]

    monkeypatch.setattr(folder, "names", names)
    with closing(Walk(folder)) as walk:
        assert [entry.payload for entry in walk.available()] == [b"15", b"16", b"17", b"18"]


def test_what_is_written_before_the_next_file_is_seen_is_not_passed(tmp_path, monkeypatch):
    """Between the last look at a file and the listing that shows the next one, the writer wrote both."""
    place(tmp_path, {FAST: cq4([b"a"], size=2000)})
    folder = Folder(tmp_path)
    real = folder.names

    def names():
        place(tmp_path, {"20231116F.cq4": cq4([b"c"]), FAST: cq4([b"a", b"b"], end=END_MARK, size=2000)})
        return real()

    with closing(Walk(folder)) as walk:
        lists = walk.lists()
        first = next(lists)
        monkeypatch.setattr(folder, "names", names)
        assert [entry.payload for entry in first + [each for found in lists for each in found]] == [b"a", b"b", b"c"]


def test_an_index_behind_the_end_of_a_file_without_its_mark_waits_as_java_does(tmp_path):
    place(tmp_path, {FAST: cq4([b"a"]), "20231116F.cq4": cq4([b"b"])})
    assert [entry.payload for entry in chronicle.read(tmp_path, index=DAY << 32 | 5)] == [b"b"]
    assert list(chronicle.read(tmp_path, index=DAY << 32 | 5, as_program=True)) == []
    with pytest.raises(Corrupt, match="no EOF mark"):
        list(chronicle.read(tmp_path, index=DAY << 32 | 5, strict=True))


# ------------------------------------------------------------------------------------------ names and folders
@pytest.mark.parametrize("table_too", [False, True])
def test_a_file_whose_name_fits_no_cycle_is_said_and_is_not_nothing(tmp_path, table_too):
    """Alone, or in a queue where no other is: its messages are there, and where they belong is not known."""
    queue = tmp_path / "q"
    chronicle.write(queue, [Entry(b"a"), Entry(b"b")])
    next(queue.glob("*.cq4")).rename(queue / "renamed.cq4")
    if not table_too:
        (queue / "metadata.cq4t").unlink()
    for verb in (formats.read, formats.state, formats.lists, formats.verify):
        with pytest.raises(BadFormat, match=r"cannot read renamed.cq4 in .* of this name"):
            verb(queue / "renamed.cq4")
    if not table_too:
        with pytest.raises(BadFormat, match="no cycle of any kind"):
            formats.read(queue)
    for place_ in (queue, queue / "renamed.cq4"):
        with pytest.raises((BadFormat, Corrupt), match=r"renamed.cq4"):
            formats.import_queue(place_, tmp_path / "into")
    assert "renamed.cq4" in {each.file for each in formats.state(queue).problems}
    assert "renamed.cq4" in {each.file for each in formats.verify(queue)}


def test_a_strange_name_among_others_is_a_problem_and_strictly_an_error(tmp_path):
    """Messages may be missing; what else is there is read."""
    chronicle.write(tmp_path / "q", [Entry(b"a")])
    (tmp_path / "q" / "copy of it.cq4").write_bytes(next((tmp_path / "q").glob("*.cq4")).read_bytes())
    assert [each.payload for each in formats.read(tmp_path / "q")] == [b"a"]
    assert [each.file for each in formats.state(tmp_path / "q").problems] == ["copy of it.cq4"]
    for backward in (False, True):
        with pytest.raises(Corrupt, match=r"copy of it.cq4 at 0: no file of a FAST_DAILY queue"):
            list(formats.read(tmp_path / "q", strict=True, backward=backward))


def test_a_folder_of_queues_is_found_by_what_is_in_it(tmp_path):
    """It needs no format=, and is made with its first queue; a queue stays in it."""
    folder = tmp_path / "queues"
    chronicle.write(folder, [Entry(b"a")], queue="orders")
    chronicle.write(folder, [Entry(b"b")], queue="bills")
    assert formats.detect(folder) == "chronicle"
    assert formats.queues(folder) == ["bills", "orders"]
    assert [each.payload for each in formats.read(folder, queue="orders")] == [b"a"]
    with pytest.raises(BadFormat, match="2 Chronicle queues"):
        formats.read(folder)
    for call in (lambda: chronicle.write(folder, [], queue="../x"), lambda: chronicle.Appender(folder, "../x")):
        with pytest.raises(BadFormat, match=r"'\.\./x'"):
            call()

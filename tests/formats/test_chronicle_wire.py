"""Chronicle's wire formats: what the bytes and the text of a document mean, and what is written for a value."""

import contextlib
import datetime
import importlib.util
import itertools
import json
import math
import random
import re
import struct
import time
import uuid
import zoneinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmq import formats
from shmq.cli import main
from shmq.errors import BadFormat, TooLarge
from shmq.formats.chronicle import binary
from shmq.formats.chronicle.binary import decode, fields
from shmq.formats.chronicle.dump import dump
from shmq.formats.chronicle.encoder import encode, encode_call, encode_map, encode_text, java_date_time, java_time
from shmq.formats.chronicle.printer import show
from shmq.formats.chronicle.text import parse
from shmq.formats.chronicle.values import (
    Date,
    DateTime,
    Event,
    Float32,
    Hex64,
    History,
    I64Array,
    Long,
    NotWire,
    Pairs,
    Time,
    Typed,
    TypeLiteral,
    Values,
    ZonedDateTime,
)
from shmq.formats.model import Entry
from tests.formats.format_fixtures import FIXTURES, PROJECT

GIVEN = FIXTURES / "chronicle" / "given"

needs_fixtures = pytest.mark.skipif(not GIVEN.is_dir(), reason=f"no chronicle fixtures in {FIXTURES}")


def expected(name):
    return json.loads((GIVEN / name / "expected.json").read_text())


def every_message():
    """(queue, message) of all given messages whose bytes are told."""
    for path in sorted(GIVEN.glob("*/expected.json")):
        if path.parent.name != "remote-frames":
            found = json.loads(path.read_text())
            documents = [one for file in found["files"] for one in file.get("docs", [])]
            yield from ((path.parent.name, one) for one in [*found.get("messages", []), *documents] if "hex" in one)


def _told_float(value):
    text = {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value)
    if text is None and value != value:
        text = "NaN"
    if text is None and value == 0 and str(value) == "-0.0":
        text = "-0.0"
    return value if text is None else {"!float": text}


TEXTS = {Time: "!time", Date: "!date", DateTime: "!dateTime", ZonedDateTime: "!zonedDateTime"}
AS = {
    **{kind: lambda v, name=name: {name: v.text} for kind, name in TEXTS.items()},
    bytes: lambda v: {"!bytes": v.hex()},
    Hex64: lambda v: {"!hex64": f"{v:#x}"},
    int: lambda v: v if abs(v) <= 1 << 53 else {"!int": str(v)},
    float: _told_float,
    Typed: lambda v: {"!type": v.type, "value": told(v.value)},
    TypeLiteral: lambda v: {"!typeLiteral": v.name},
    History: lambda v: {"!history": True, "sources": [list(s) for s in v.sources], "timings": list(v.timings)},
    dict: lambda v: {f"#{name}" if name.isdigit() else name: told(one) for name, one in v.items()},
    list: lambda v: [told(one) for one in v],
    Values: lambda v: [told(one) for one in v],
    uuid.UUID: lambda v: {"!uuid": str(v)},
}


def told(value):
    """A value, as the fixtures' manifest tells it in JSON."""
    return AS.get(type(value), lambda v: v)(value)


def told_document(value):
    """As `told`, of a whole document: values without names are a list there, one of them too."""
    return told(value) if isinstance(value, dict | list | bytes | Values) else [told(value)]


@needs_fixtures
def test_every_message_that_java_wrote_decodes_to_its_value_or_is_known_not_to_be_wire():
    count = 0
    for queue, message in every_message():
        payload = bytes.fromhex(message["hex"])
        try:
            found = told_document(decode(payload))
        except NotWire:
            found = NotWire
        wanted = NotWire if message.get("opaque") else message["value"]
        assert found == wanted, (queue, message["seq"], message["hex"])
        count += 1
    assert count > 800


@needs_fixtures
def test_fields_tells_the_addresses_of_the_longs_that_programs_change():
    data = (GIVEN / "roll" / "20231116T4.cq4").read_bytes()
    word = struct.unpack_from("<I", data, 0)[0]
    (header,) = fields(data, 4, 4 + (word & 0x3FFFFFFF))
    assert (header.name, header.event, header.types, header.block) == ("header", True, ("SCQStore",), True)
    position, indexing, data_format = fields(data, header.body, header.stop)
    assert (position.name, position.code, position.value) == ("writePosition", binary.I64_ARRAY, I64Array(2, 2, 0x40))
    assert binary.with_numbers(data, position.value).numbers == struct.unpack_from("<2q", data, 0x40)
    assert (indexing.types, indexing.block) == (("SCQSIndexing",), True)
    count, spacing, index2index, last = fields(data, indexing.body, indexing.stop)
    assert (count.value, spacing.value) == (32, 4)
    assert (index2index.name, index2index.code, index2index.body % 8) == ("index2Index", binary.INT64, 0)
    assert struct.unpack_from("<q", data, index2index.body) == (index2index.value,) == (200,)
    assert (last.name, last.value, last.body % 8) == ("lastIndex", 300, 0)
    assert data_format.value == 1


@needs_fixtures
def test_fields_reads_the_table_of_an_old_and_of_a_new_queue():
    for name, file in (("tailers", "metadata.cq4t"), ("real-libchronicle-cqv4", "directory-listing.cq4t")):
        data = (GIVEN / name / file).read_bytes()
        at, found = 0, {}
        while word := struct.unpack_from("<I", data, at)[0]:
            size = word & 0x3FFFFFFF
            if word < 0x40000000:
                (entry,) = fields(data, at + 4, at + 4 + size)
                assert entry.body % 8 == 0
                found[entry.name] = entry.value
            at += 4 + size
            at += -at & 3
        if name == "tailers":
            assert {key: told(value) for key, value in found.items()} == expected(name)["metadata"]["entries"]
        else:
            assert found["listing.highestCycle"] == found["listing.lowestCycle"] == 18956


def test_padding_is_passed_wherever_a_code_may_stand():
    pad = b"\x8f" + b"\x8e\x03\0\0\0abc"
    inner = pad + b"\xc1a" + pad + b"\xa1\x07" + pad
    data = pad + b"\xb9\x01e" + pad + b"\xb6\x01T" + pad + b"\x80" + bytes([len(inner)]) + inner + pad
    assert decode(data) == {"e": Typed("T", {"a": 7})}
    (field,) = fields(data)
    assert [(f.name, f.value) for f in fields(data, field.body, field.stop)] == [("a", 7)]


# ---------------------------------------------------------------- hostile bytes
def deep(levels):
    data = b"\xa1\x05"
    for _ in range(levels):
        data = b"\x82" + struct.pack("<I", len(data)) + data
    return data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xc1a", "a name or a type without a value"),
        (b"\xc2a", "a name needs 2 bytes"),
        (b"\xe5abc", "a text needs 5 bytes"),
        (b"\xc1a\xa7\0\0\0", "a number needs 8 bytes"),
        (b"\xc1a\x82\xff\xff\xff\xff", "a block needs 4294967295 bytes"),
        (b"\xc1a\x81\x05", "the length of a block needs 2 bytes"),
        (b"\xc1a\x8d" + struct.pack("<QQ", 1 << 61, 0), "an array of 2305843009213693952 longs needs"),
        (b"\xc1a\x8d\0", "an array of longs needs 16 bytes"),
        (b"\x8e\xff\xff\xff\x7f", "padding goes on behind the end"),
        (b"\x8e\xff", "padding needs 5 bytes"),
        (b"\xc1a\xb8\xfe\x01", "byte 5: a text needs 254 bytes"),
        (b"\xc1a\xb8\x81\x80\0", "a text of -2 bytes"),
        (b"\xc1a\xb8" + b"\xff" * 20, "a stop-bit number of more than 11 bytes"),
        (b"\xc1a\xb8" + b"\xff" * 9 + b"\x7f", "a stop-bit number of more than 64 bits"),
        (b"\xc1a\xa1\x01\xa1\x02", "0xa1 stands where the name of a field must"),
        (b"\x87\0", "0x87 is not the code of a value"),
        (b"\xbf", "0xbf is not the code of a value"),
        (b"\xc1a\xe1\xff", "not UTF-8"),
        (b"\xc1a\xe4\xf0\x9f\x98\x80", "a character of four bytes"),
        (b"hello", "begins with 0x68"),
        (b"\xc1a\x80\x04\x86\0\0x", "behind the value that fills a block"),
        (b"\x80\x02\x86\x05", "the sources of a history"),
        (b"\xb6\x01T" * 5000 + b"\xa1\x01", "types and blocks within one another"),
        (deep(5000), "types and blocks within one another"),
        (b"\xbd" * 5000, "0xbd is not the code of a value"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:8].hex(),
)
def test_what_is_no_wire_is_refused_with_the_byte_and_the_reason(data, why):
    with pytest.raises(NotWire, match=why):
        decode(data)


def test_no_bytes_make_the_decoder_fail_in_another_way_or_take_long():
    chance = random.Random(20)
    likely = bytes([*range(0x80, 0x97), *range(0xA0, 0xC3), 0xE0, 0xE2, 0, 1, 2, 3, 8])
    for _ in range(3000):
        size = chance.randrange(1, 60)
        data = chance.randbytes(size) if chance.random() < 0.3 else bytes(chance.choices(likely, k=size))
        with contextlib.suppress(NotWire):
            decode(data)
        with contextlib.suppress(NotWire):
            list(fields(data))


def test_pieces_of_documents_are_read_in_one_way_or_refused():
    spec = importlib.util.spec_from_file_location("fuzz_wire", PROJECT / "tests" / "fuzz" / "wire.py")
    fuzz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fuzz)
    assert fuzz.loop(2000, 60, 1_000_000) == 2000


# ---------------------------------------------------------------- what is written
WRITTEN_OTHERWISE = {
    ("wire", 47): "a double of 256 is read as the number 256, and as a long that is written in another code",
    ("wire", 62): "a comment is not part of the value",
    ("wire", 65): "of writeMap, whose numbers are as wide as their classes",
}


@needs_fixtures
@pytest.mark.parametrize("queue", ["wire", "text", "method", "meta", "tailers"])
def test_what_java_wrote_is_written_again_byte_by_byte(queue):
    for message in expected(queue)["messages"]:
        if "hex" in message:
            payload = bytes.fromhex(message["hex"])
            same = encode(decode(payload)) == payload
            assert same is ((queue, message["seq"]) not in WRITTEN_OTHERWISE), (message["seq"], message["hex"])


@needs_fixtures
def test_a_map_is_written_as_write_map_does():
    message = expected("wire")["messages"][65]
    values = {"s": "str", "i": 42, "l": Long(42_000_000_000), "d": 1.5, "list": ["a", "b"]}
    assert encode_map(values).hex() == message["hex"]


@needs_fixtures
def test_a_call_is_written_as_a_method_writer_does():
    for message in expected("method")["messages"]:
        value = decode(bytes.fromhex(message["hex"]))
        (name, argument) = list(value.items())[1]
        assert encode_call(name, argument, history=value["history"]).hex() == message["hex"]


JAVA_WRITES = [
    (0, "a100"),
    (255, "a1ff"),
    (256, "a50001"),
    (32767, "a5ff7f"),
    (32768, "a20080"),
    (65535, "a2ffff"),
    (65536, "a600000100"),
    ((1 << 31) - 1, "a6ffffff7f"),
    (1 << 31, "a300000080"),
    ((1 << 32) - 1, "a3ffffffff"),
    (1 << 32, "900000804f"),
    ((1 << 32) + 1, "a70100000001000000"),
    ((1 << 63) - 1, "900000005f"),
    ((1 << 63) - 2, "a7feffffffffffff7f"),
    (-1, "a4ff"),
    (-128, "a480"),
    (-129, "a57fff"),
    (-32769, "a6ff7fffff"),
    (-(1 << 31), "a600000080"),
    (-(1 << 31) - 1, "a7ffffff7fffffffff"),
    (-(1 << 63), "90000000df"),
    (0.0, "a100"),
    (-0.0, "a100"),
    (256.0, "a20001"),
    (65536.0, "9000008047"),
    (16777217.0, "a301000001"),
    (4294967297.0, "91000010000000f041"),
    (-32769.0, "90000100c7"),
    (-16777217.0, "a6fffffffe"),
    (0.5, "9232"),
    (1.2345, "94b960"),
    (1e-06, "9601"),
    (-2.5, "92f98100"),
    (1e100, "917dc39425ad49b254"),
    (math.inf, "900000807f"),
    (math.nan, "900000c07f"),
    (Float32(0.1), "920a"),
    (Float32(3.4e38), "909ec97f7f"),
    ("\U0001f600", "e6eda0bdedb880"),
    ("\0", "e100"),
    ("x" * 31, "ff" + "78" * 31),
    ("\u00e9" * 16, "b820" + "c3a9" * 16),
    ({"5": "x"}, "ba05e178"),
    ({"05": "x"}, "c23035e178"),
    ({"": "x"}, "c0e178"),
    ({"k" * 32: "x"}, "b720" + "6b" * 32 + "e178"),
    ({Event("5"): "x"}, "b90135e178"),
    ({5: "v"}, "bda605000000e176"),
    ({"\u2603": 1}, "bde3e29883a101"),
    (b"", "80018a"),
    (b"x" * 255, "8100018a" + "78" * 255),
    ({}, "8f"),
    ([], "8200000000"),
    (Hex64(0xCAFE), "affeca000000000000"),
    (datetime.time(1, 2), "b20530313a3032"),
    (datetime.date(2024, 2, 29), "b30a323032342d30322d3239"),
    (datetime.datetime(2024, 1, 2, 3, 4, 5, 6000), "b417323032342d30312d30325430333a30343a30352e303036"),  # noqa: DTZ001
    (datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), "b511" + b"2024-01-02T00:00Z".hex()),
    (
        datetime.datetime(2024, 7, 2, 3, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")),
        "b524" + b"2024-07-02T03:00+02:00[Europe/Paris]".hex(),
    ),
]


@pytest.mark.parametrize(("value", "wanted"), JAVA_WRITES, ids=lambda value: repr(value)[:30])
def test_a_value_takes_the_code_that_java_takes(value, wanted):
    assert encode(value).hex() == wanted


def test_what_no_wire_can_hold_is_refused():
    with pytest.raises(TooLarge, match="64 bits of a long"):
        encode(1 << 63)
    with pytest.raises(TooLarge, match="64 bits of a long"):
        encode(Hex64(1 << 63))
    with pytest.raises(TypeError, match="no code for a object"):
        encode(object())
    endless = []
    endless.append(endless)
    with pytest.raises(TooLarge, match="nested"):
        encode(endless)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 2),
    st.floats(allow_nan=False),
    st.text(st.characters(), max_size=40),
    st.uuids(),
    st.builds(Hex64, st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(TypeLiteral, st.text(max_size=5)),
    st.builds(Date, st.text(max_size=5)),
    st.builds(History, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3).map(tuple), st.just((1,))),
)
names = st.one_of(st.text(max_size=40), st.builds(Event, st.text(max_size=40)), st.integers(0, 99))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        # An empty map and an empty sequence are the same bytes.
        st.dictionaries(names, inner, min_size=1, max_size=4),
        st.builds(Typed, st.text(max_size=5), inner),
    ),
    max_leaves=12,
)


@given(st.one_of(values, st.binary(max_size=300), st.lists(values, min_size=2, max_size=4).map(Values)))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_a_value_that_is_written_is_read_again(value):
    assert decode(encode(value)) == value


@given(values)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_a_map_of_wide_numbers_is_read_again(value):
    assert decode(encode_map({"v": value, "bytes": b"a"})) == {"v": value, "bytes": Typed("byte[]", b"a")}


# ---------------------------------------------------------------- text
def bodies(frame):
    """The documents of one frame, without their words."""
    data, at = bytes.fromhex(frame["hex"]), 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at)[0] & 0x3FFFFFFF
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def alike(value):
    """A value in which empty maps and empty sequences are one: in BinaryWire they are the same bytes."""
    match value:
        case dict() if value:
            return {name: alike(one) for name, one in value.items()}
        case Typed():
            return Typed(value.type, alike(value.value))
        case list() | dict():
            return [alike(one) for one in value]
    return value


def frames():
    if not GIVEN.is_dir():
        return []
    found = json.loads((GIVEN / "remote-frames" / "frames.json").read_text())
    return [pytest.param(*found[at : at + 2], id=found[at]["name"]) for at in range(0, len(found), 2)]


@needs_fixtures
@pytest.mark.parametrize(("as_text", "as_binary"), frames())
def test_a_frame_means_the_same_as_text_and_as_binary(as_text, as_binary):
    assert (as_text["wire"], as_binary["wire"]) == ("TEXT", "BINARY")
    for text, data in zip(bodies(as_text), bodies(as_binary), strict=True):
        value = parse(text)
        assert alike(value) == alike(decode(data))
        assert parse(show(value)) == value
        assert alike(decode(encode(value))) == alike(value)
        assert "{\n}" in text.decode() or "[]" in text.decode() or show(value).strip() == text.decode().strip()


RFC = """\
--- !!meta-data
csp://server/path/queue-name#tailer/12345
# or
cid: 1212
tid: 123456789
...
--- !!data
index: 1286348638468324 # the actual index read.
reply:
  - { field1: one, field2: two }
  - !!binary AAEC/wo=
  - !!queue-appender { csp://server/path/map-name#appender, cid: 1234 }
...
"""


def test_the_text_of_the_rfc_can_be_fed_in_as_it_is_printed_there():
    assert parse(RFC) == {
        "csp": "//server/path/queue-name#tailer/12345",
        "cid": 1212,
        "tid": 123456789,
        "index": 1286348638468324,
        "reply": [
            {"field1": "one", "field2": "two"},
            b"\0\1\2\xff\n",
            Typed("queue-appender", {"csp": "//server/path/map-name#appender", "cid": 1234}),
        ],
    }


READ_AS = [
    # numbers and words
    ("010", 8),
    ("08", 8.0),
    ("1_000", 1000),
    ("0xCAFE", 0xCAFE),
    ("0xffffffffffffffff", -1),
    ("-5", -5),
    ("9223372036854775808", 9223372036854775808.0),
    ("1E6", 1e6),
    ("1.5", 1.5),
    ("-Infinity", -math.inf),
    ("-", "-"),
    (".5", ".5"),
    ("5 apples", "5 apples"),
    ("1" * 41, "1" * 41),
    ("true", True),
    ("false", False),
    ("null", None),
    ("~", None),
    ('!!null ""', None),
    ('!null ""', None),
    ("!short 256", 256),
    ("!float 1", 1.0),
    ("01:02:03", Time("01:02:03")),
    ("2024-02-29", Date("2024-02-29")),
    ("2023-11-14T22:13:20.005", DateTime("2023-11-14T22:13:20.005")),
    ("2024-01-02T03:04:05Z", ZonedDateTime("2024-01-02T03:04:05Z")),
    # texts
    ("a,b", "a,b"),
    ("hello # comment", "hello"),
    ("hello#x", "hello"),
    ("it's", "it's"),
    ("a:b", "a:b"),
    (r'"\0\a\b\t\n\v\f\r\e\"\'\\\N\_\L\P\x41\u263A\q"', "\0\a\b\t\n\v\f\r\x1b\"'\\\x85\xa0\u2028\u2029A\u263aq"),
    (r'"\uD83D\uDE00"', "\U0001f600"),
    (r'"\uD83D"', "\ud83d"),
    (r"'it\'s'", "it's"),
    ("'it''s'", "it's"),
    ('"#x"', "#x"),
    ("|\n  one\n    two\n\n  three\n\n", "one\n  two\n\nthree\n"),
    # bytes
    ("!!binary AAEC/wo=", b"\0\1\2\xff\n"),
    ("!binary AAEC/wo", b"\0\1\2\xff\n"),
    ('!!binary "AAEC/wo="', b"\0\1\2\xff\n"),
    ("!!binary |\n  AAEC\n  /wo=\n", b"\0\1\2\xff\n"),
    ("!!binary ", b""),
    # types
    ("!type String", TypeLiteral("String")),
    ("!MyType { x: 1 }", Typed("MyType", {"x": 1})),
    ("!!my.Type{x: 1}", Typed("my.Type", {"x": 1})),
    ("!byte[] !!binary AA==", Typed("byte[]", b"\0")),
    # what holds others
    ("{ a: 1, b: [ x, {c: d} ], }", {"a": 1, "b": ["x", {"c": "d"}]}),
    ("{a:1,b:2}", {"a": 1, "b": 2}),
    ('{"a":1,"b":[1,2.5,true,"x"]}', {"a": 1, "b": [1, 2.5, True, "x"]}),
    ("{\n}", {}),
    ("[ ]", []),
    ("[ a b, c ]", ["a b", "c"]),
    ("{ a: 1, a: 2 }", Pairs((("a", 1), ("a", 2)))),
    ("{ ? 5: x }", {5: "x"}),
    ("{ a: 1 # one\n , # two\n b: 2 }", {"a": 1, "b": 2}),
    ("\n- a\n- b", ["a", "b"]),
    ("\n  - a: 1\n    b: 2\n  - c\n  -\n    - d", [{"a": 1, "b": 2}, "c", ["d"]]),
    ("\n  x: 1\n  y:\n    z: 2", {"x": 1, "y": {"z": 2}}),
    ("\n  text", "text"),
]


@pytest.mark.parametrize(("text", "value"), READ_AS, ids=lambda value: repr(value)[:30])
def test_a_value_of_text_is_read_by_the_rules_of_text_wire(text, value):
    assert parse(f"k: {text}") == {"k": value}
    assert parse(f"k: {text}\nlast: 1\n") == {"k": value, "last": 1}


def test_a_fragment_belongs_to_a_csp_unless_a_blank_precedes_it():
    for text in (
        "csp://host/q#Queue",
        "csp: //host/q#Queue",
        'csp: "//host/q#Queue"',
        "csp://host/q#Queue # the queue",
    ):
        assert parse(f"{text}\ncid: 1\n") == {"csp": "//host/q#Queue", "cid": 1}
    assert parse("reply: { csp://host/q#tailer/5, cid: 1 }") == {"reply": {"csp": "//host/q#tailer/5", "cid": 1}}
    assert parse("csp://host/q #Queue") == {"csp": "//host/q"}


def test_a_document_has_events_on_lines_or_behind_commas_or_values_alone():
    assert parse('a: 1, b: 2\n"c d": 3\n\n# end\n  ') == {"a": 1, "b": 2, "c d": 3}
    assert parse("say: a\nsay: b\n") == Pairs((("say", "a"), ("say", "b")))
    assert parse("hello") == "hello"
    assert parse("12:30:00\n") == Time("12:30:00")
    assert parse("1\nb\n[ c ]\n") == Values((1, "b", ["c"]))
    assert parse("") == {}
    assert parse(b"k: \xe2\x98\x83\xed\xa0\xbd\xed\xb8\x80") == {"k": "\u2603\U0001f600"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: [ 1, 2", "line 2, column 10: expected a comma or ], found the end"),
        ("a: { b 1 }", "line 1, column 6: expected a name with a colon behind it, found 'b 1 }'"),
        ('a: "x', "line 1, column 4: expected a text that ends with \", found '\"x'"),
        ("a:\nb: 2", "line 2, column 1: expected a value, found 'b: 2'"),
        ("a:", "line 1, column 3: expected a value, found the end"),
        ("a: !!binary 1!", "line 1, column 13: expected bytes in base64, found '1!'"),
        ("a: ! x", "line 1, column 4: expected the name of a type"),
        ("a: 1\nb", "line 2, column 1: expected the name of an event, with a colon behind it, found 'b'"),
        ("b\na: 1", "line 2, column 1: expected another value"),
        ("a: x: y", "line 1, column 5: expected the name of an event"),
        ("a:\n  b: 1\n   c: 2", "line 3, column 4: expected a name at column 3, found 'c: 2'"),
        ("a: {b: 1 c: 2}", "expected a comma or }, found ': 2}'"),
        ("[" * 101, "line 1, column 101: expected no more than 100 values"),
        (b"a: b\nc: \xff", "line 2, column 4: expected text, found a byte that is not UTF-8"),
    ],
)
def test_what_is_no_text_wire_is_refused_with_the_place_and_what_was_expected(text, why):
    with pytest.raises(NotWire, match=re.escape(why)):
        parse(text)


SHOWN_AS = [
    ("", '""'),
    ("plain text", "plain text"),
    ("5a", '"5a"'),
    ("a:b", '"a:b"'),
    (" a", '" a"'),
    ("a ", '"a "'),
    ("it's", "it's"),
    ('say "hi"', "'say \"hi\"'"),
    ('say "hi", it\'s', '"say \\"hi\\", it\'s"'),
    ("a\tb\u263a\x07\0\xe9\U0001f600", r'"a\tb\u263A\a\0\xE9\uD83D\uDE00"'),
    ("true", '"true"'),
    (15_000_000.0, "15E6"),
    (123_000.0, "123E3"),
    (65536.0, "65536.0"),
    (1e-6, "1.0E-6"),
    (1.5e-4, "1.5E-4"),
    (0.001, "0.001"),
    (1e100, "1.0E100"),
    (1234567890123456.0, "1.234567890123456E15"),
    (math.nan, "NaN"),
    (-0.0, "-0.0"),
    (None, '!!null ""'),
    (b"\0\1", "!!binary AAE="),
    (b"", '!!binary ""'),
    (Hex64(-1), "0xffffffffffffffff"),
    (TypeLiteral("String"), "!type String"),
    (Typed("T", {"a": 1}), "!T {\n  a: 1\n}"),
    (Typed("bad\nname", 1), "!bad_name 1"),
    (Date("not: a date\n"), r'"not: a date\n"'),
    ({"b": {"c": {"d": [1, {}]}}}, "{\n  b: {\n    c: { d: [ 1, { } ] }\n  }\n}"),
    ([[1], []], "[\n  [\n    1\n  ],\n  [ ]\n]"),
    ({5: "x"}, "{\n  ? 5: x\n}"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN_AS, ids=lambda value: repr(value)[:30])
def test_a_value_is_printed_as_chronicle_prints_it(value, text):
    assert show({"k": value}) == f"k: {text}\n"


shown_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.text("ab \"'#:,{}[]|>!\\^?%*&@`0-+=;~\t\n.", max_size=8),
    st.binary(max_size=20),
    st.builds(Hex64, st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(TypeLiteral, st.text(min_size=1, max_size=5)),
    st.builds(lambda when: Time(java_time(when)), st.times()),
    st.builds(lambda when: DateTime(java_date_time(when)), st.datetimes()),
    st.builds(lambda when: Date(when.isoformat()), st.dates()),
)
shown_values = st.recursive(
    shown_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=9), st.integers(0, 99)), inner, max_size=4),
        st.builds(Typed, st.sampled_from(["MyType", "a.b-c$D", "int[]"]), inner),
    ),
    max_leaves=12,
)


@given(st.one_of(shown_values, st.lists(shown_values, min_size=2, max_size=3).map(Values)))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_what_is_printed_is_read_again(value):
    assert parse(show(value)) == value


TRAPS = {
    "an open quote": 'a: "' + "x" * 300_000,
    "quotes of one kind": "'" * 200_001,
    "backslashes": '"' + "\\" * 300_000,
    "open brackets": "[" * 100_000,
    "open maps": "{a:" * 100_000,
    "dashes": "- " * 100_000,
    "types": "!T " * 100_000,
    "one long line of pairs": "a: 1, " * 20_000,
    "no colon": "x" * 300_000,
    "comments": "#\n" * 100_000,
    "an address of comments": "csp:/" + " #" * 100_000,
    "digits": "1" * 300_000,
    "question marks": "? " * 100_000,
}


@pytest.mark.parametrize("name", TRAPS)
def test_no_text_takes_long_to_be_read_or_refused(name):
    started = time.process_time()
    with contextlib.suppress(NotWire):
        parse(TRAPS[name])
    # Milliseconds each where the time is that of one pass; minutes where it grows with the square.
    assert time.process_time() - started < 5


def test_no_text_makes_the_parser_fail_in_another_way():
    chance = random.Random(20)
    parts = [
        "a",
        "b",
        ":",
        ": ",
        " ",
        "\n",
        "\n  ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ",",
        ", ",
        "!",
        "!!",
        "!T ",
        "!!binary ",
        '"',
    ]
    parts += [
        "'",
        "#",
        "?",
        "? ",
        "|",
        "|\n",
        "~",
        "1",
        "0x",
        "-",
        "...",
        "---\n",
        "csp:",
        "\\",
        "!type ",
        "!!null ",
        "\0",
        "\r",
    ]
    for _ in range(4000):
        with contextlib.suppress(NotWire):
            parse("".join(chance.choices(parts, k=chance.randrange(1, 16))))


# ---------------------------------------------------------------- dump
def dumped(path):
    return list(dump(path))


FIRST_FILE = """\
--- !!meta-data #binary
header: !SCQStore {
  writePosition: [
    892,
    3831110828041
  ],
  indexing: !SCQSIndexing {
    indexCount: 32,
    indexSpacing: 4,
    index2Index: 200,
    lastIndex: 12
  },
  dataFormat: 1
}
# position: 200, header: -1
--- !!meta-data #binary
index2index: [
  # length: 32, used: 1
  496,
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
]
# position: 496, header: -1
--- !!meta-data #binary
index: [
  # length: 32, used: 3
  784,
  832,
  880,
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
]
# position: 784, header: 0
--- !!data #binary
c0 m0
"""
"""What Chronicle's own dump prints of this file."""


@needs_fixtures
def test_a_dump_looks_as_chronicles_own():
    lines = dumped(GIVEN / "roll" / "20231115T4.cq4")
    assert "\n".join(lines).startswith(FIRST_FILE)
    assert lines[-4:] == [
        "# position: 904, header: 9 EOF",
        "--- !!not-ready-meta-data #binary",
        "...",
        "# 7284 bytes remaining",
    ]
    table = dumped(GIVEN / "roll" / "metadata.cq4t")
    assert "    roll: !SCQSRoll { length: 86400000, format: yyyyMMdd'T4', epoch: 0 }," in table
    assert table[-5:] == [
        "# position: 472, header: 7",
        "--- !!data #binary",
        "chronicle.lastIndexMSynced: -1",
        "...",
        "# 130548 bytes remaining",
    ]


@needs_fixtures
@pytest.mark.parametrize(
    "queue", ["bytes", "wire", "roll", "meta", "missing-eof/before", "custom-index", "crash", "text"]
)
def test_a_dump_shows_every_message_where_it_lies(queue):
    folder = GIVEN / queue
    told_of = expected(queue)
    lines = dumped(folder)
    file, found = None, []
    for line, following in itertools.pairwise(lines):
        file = line[3:] if line.startswith("## ") else file
        if (place := re.fullmatch(r"# position: (\d+), header: (\d+)", line)) and following.startswith("--- !!data"):
            found.append((file, int(place[1]), int(place[2])))
    data = [each for each in found if each[0].endswith(".cq4")]
    assert data == [(each["file"], each["pos"], each["seq"]) for each in told_of["messages"]]


@needs_fixtures
def test_a_dump_shows_what_is_no_wire_in_digits_and_what_is_text_as_it_is():
    lines = dumped(GIVEN / "bytes")
    at = lines.index("# position: 65840, header: 4")
    assert lines[at + 1 : at + 3] == [
        "--- !!data #binary",
        "00010130             33 ef f9 7a  da                          3\u00b7\u00b7z \u00b7",
    ]
    old = dumped(GIVEN / "real-libchronicle-cqv4" / "20211125.cq4")
    at = old.index("# position: 131591, header: 1")
    assert old[at + 1 : at + 3] == ["--- !!data", "two"]
    assert old[-1] == "# 64927 bytes remaining"


def document(payload, kind=0):
    return struct.pack("<I", len(payload) | kind) + payload + bytes(-len(payload) % 4)


def test_a_dump_of_a_damaged_file_ends_where_nothing_more_can_be_told(tmp_path):
    begin = document(b"\xc1a\xa1\x01", 0x40000000) + document(b"\xe1x")
    file = tmp_path / "20231115F.cq4"
    file.write_bytes(begin + struct.pack("<I", 500) + b"torn")
    assert dumped(file)[-2:] == ["# position: 16, header: 1", "#  has a 4 byte size prefix, 500 > 4 len is 500"]
    file.write_bytes(begin + struct.pack("<I", 0x80000123) + b"torn")
    assert dumped(file)[-4:] == [
        "# position: 16, header: 0 or 1",
        "--- !!not-ready-data #binary",
        "...",
        "# 4 bytes remaining",
    ]
    file.write_bytes(begin[:18])
    assert dumped(file)[-1] == "# 0 bytes remaining"


def test_rows_of_nothing_are_told_once(tmp_path):
    file = tmp_path / "20231115F.cq4"
    file.write_bytes(document(b"\xc1a\xa1\x01", 0x40000000) + document(b"\xb8\xff" + bytes(64)))
    lines = dumped(file)
    at = lines.index("--- !!data #binary")
    assert [line.rstrip() for line in lines[at + 1 : at + 5]] == [
        "00000000                                      b8 ff 00 00              \u00b7\u00b7\u00b7\u00b7",
        "00000010 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 " + " ".join(["\u00b7" * 8] * 2),
        "........",
        "00000040 00 00 00 00 00 00 00 00  00 00 00 00 00 00" + " " * 7 + " ".join(["\u00b7" * 8, "\u00b7" * 6]),
    ]


def test_a_dump_holds_no_large_document_and_can_end_early(tmp_path):
    file = tmp_path / "20231115F.cq4"
    large = b"\xb8" + b"\xff" * 3 + b"\x07" + bytes(16 << 20)
    file.write_bytes(document(b"\xc1a\xa1\x01", 0x40000000) + document(large) + document(b"\xe1x") + document(b"\xe1y"))
    lines = dumped(file)
    assert f"# {len(large) - 4096} bytes more" in lines
    assert len(lines) < 400
    assert [line for line in dump(file, limit=2) if not line.startswith("0000")][-2:] == ["--- !!data #binary", "x"]


def test_a_format_without_a_dump_of_its_own_says_so(tmp_path):
    formats.write(tmp_path / "src", [Entry(b"a", 0)], "sej")
    with pytest.raises(BadFormat, match="sej has no dump of its own"):
        formats.dump(tmp_path / "src")


def test_the_command_prints_the_dump_and_with_json_the_messages(tmp_path, capfd):
    folder = tmp_path / "orders.cq"
    entries = [Entry(encode_text(f"order {number}"), None, 10**18) for number in range(3)]
    formats.write(folder, entries, "chronicle", consumers={"billing": (0, ())})
    assert main(["dump", str(folder)]) == 0
    shown = capfd.readouterr().out.splitlines()
    assert shown == dumped(folder)
    assert "order 2" in shown
    assert "index.billing: 0" in shown
    assert main(["dump", str(folder), "--limit", "1"]) == 0
    assert "order 1" not in capfd.readouterr().out
    assert main(["dump", str(folder), "--json"]) == 0
    assert len([json.loads(line) for line in capfd.readouterr().out.splitlines()]) == 3
    assert main(["dump", str(folder), "--raw"]) == 0
    assert capfd.readouterr().out.count("order") == 3


def test_found_a_type_without_a_name_is_shown_as_one_that_can_be_read():
    """BinaryWire has one of no characters, which is no type in text; the fuzzer read back what was shown."""
    assert parse(show({"a": Typed("", 1)})) == {"a": Typed("_", 1)}

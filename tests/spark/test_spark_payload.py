"""Payloads into typed columns, and what becomes of those that do not parse."""

from __future__ import annotations

import datetime
import json
import zoneinfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")

import json_values  # noqa: E402

from shmq.spark import objects, payload  # noqa: E402
from shmq.spark.encoding import encoded  # noqa: E402

RELAXED = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
FIELDS = pa.schema([("a", pa.int64()), ("s", pa.string())])


def decoded(kind, payloads, fields=FIELDS, **more):
    found = payload.Decoder(kind, fields, **more)(pa.array(payloads, pa.binary()))
    assert found.table.schema == fields
    bad = [False] * found.table.num_rows if found.bad is None else found.bad.to_pylist()
    assert len(bad) == found.table.num_rows
    return found.table.to_pylist(), bad, found.messages


BAD = [
    b"",
    b" ",
    b"null",
    b"7",
    b"[1]",
    b'{"a":1}{"a":2}',
    b'{"a":1},"x":2',
    b'{"a":1}\n{"a":2}',
    b'{"a":1',
    b'"a":1}',
    b'{"a":"x"}',
    b'{"a":1.5}',
    b'{"a":9223372036854775808}',
    b'{"s":"\xff"}',
    b'{"s":"line\nfeed"}',
    b"\x00\xff",
]
GOOD = [
    (b'{"a":1,"s":"x"}', {"a": 1, "s": "x"}),
    (b' {"a":2}\r\n', {"a": 2, "s": None}),
    (b"{}", {"a": None, "s": None}),
    (b'{"a":1,"a":2}', {"a": 2, "s": None}),
    (b'{"s":7,"q":NaN}', {"a": None, "s": "7"}),
    (b'{"a":3,\n "more":[{}]}', {"a": 3, "s": None}),
    (b'{"s":"{\\"a\\":1}"}', {"a": None, "s": '{"a":1}'}),
    (b'{"s":"\xc3\xa4"}', {"a": None, "s": "ä"}),
]


@pytest.mark.parametrize("one", BAD)
def test_what_is_no_json_object_spoils_its_own_row_alone(one):
    rows, bad, _ = decoded("json", [b'{"a":5}', one, b'{"a":6}'])
    assert bad == [False, True, False]
    assert rows == [{"a": 5, "s": None}, {"a": None, "s": None}, {"a": 6, "s": None}]


@RELAXED
@given(st.lists(st.one_of(st.sampled_from(BAD).map(lambda b: (b, None)), st.sampled_from(GOOD)), max_size=30))
def test_a_row_means_the_same_whoever_its_neighbours_are(chosen):
    rows, bad, _ = decoded("json", [raw for raw, _ in chosen])
    assert bad == [right is None for _, right in chosen]
    assert rows == [right or {"a": None, "s": None} for _, right in chosen]


@RELAXED
@given(st.lists(st.binary(max_size=12), max_size=20))
def test_bytes_of_any_kind_give_a_row_each(payloads):
    _, bad, _ = decoded("json", payloads)
    for raw, wrong in zip(payloads, bad, strict=True):
        if not wrong:
            assert isinstance(json.loads(raw), dict)


SIMPLE = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(38, 10): st.decimals(-(10**20), 10**20, places=10),
    pa.decimal128(5, 0): st.decimals(-99999, 99999, places=0),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.binary(): st.binary(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.timestamp("us"): st.datetimes(),
}
KEYS = [kind for kind in SIMPLE if not pa.types.is_floating(kind)]


def kinds():
    """Types of columns, as Spark has them."""
    simple = st.sampled_from(list(SIMPLE))
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            inner.map(pa.list_),
            st.tuples(st.sampled_from(KEYS), inner).map(lambda pair: pa.map_(*pair)),
            st.lists(inner, min_size=1, max_size=3).map(
                lambda each: pa.struct([(f"f{n}", k) for n, k in enumerate(each)])
            ),
        ),
        max_leaves=4,
    )


def values_of(kind):
    if pa.types.is_struct(kind):
        inner = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    elif pa.types.is_map(kind):
        inner = st.dictionaries(SIMPLE[kind.key_type], values_of(kind.item_type), max_size=3).map(
            lambda d: list(d.items())
        )
    elif pa.types.is_list(kind):
        inner = st.lists(values_of(kind.value_type), max_size=3)
    else:
        inner = SIMPLE[kind]
    return st.none() | inner


@st.composite
def tables(draw):
    chosen = draw(st.lists(kinds(), min_size=1, max_size=3))
    count = draw(st.integers(1, 4))
    columns = [pa.array(draw(st.lists(values_of(kind), min_size=count, max_size=count)), kind) for kind in chosen]
    return pa.RecordBatch.from_arrays(columns, [f"c{number}" for number in range(len(chosen))])


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@settings(RELAXED, max_examples=200)
@given(rows=tables())
def test_found_whatever_is_written_is_read_equal(kind, rows):
    """Bytes, days, decimals and maps were not; nor NaN, which became null. By neither way of reading."""
    payloads = encoded(kind, rows)
    for more in ([], [b"no object"]):  # which Arrow's parser refuses, and all of the batch with it
        found = payload.Decoder(kind, rows.schema)(pa.concat_arrays([payloads, pa.array(more, pa.binary())]))
        back = found.table.slice(0, rows.num_rows)
        assert repr(back.to_pylist()) == repr(rows.to_pylist())
        assert (found.bad is None) == (not more)


@pytest.mark.parametrize("kind", json_values.TYPES.values(), ids=json_values.TYPES)
def test_a_value_is_read_the_same_by_either_way(kind):
    """At once or one by one; `from_json` is asked about the latter."""
    fields = pa.schema([("v", kind)])
    zone = zoneinfo.ZoneInfo(json_values.ZONE)
    for value in json_values.VALUES:
        alone = pa.array([f'{{"v":{value}}}'.encode()], pa.binary())
        at_once = objects.AtOnce(fields, zone)(alone) if objects.AtOnce.can(fields) else None
        if at_once is not None:
            table, bad = objects.OneByOne("json", fields, zone)(alone)
            assert (value, at_once.to_pylist(), None) == (value, table.to_pylist(), bad)


def test_json_has_times_and_dates():
    fields = pa.schema([("t", pa.timestamp("us", "UTC")), ("d", pa.date32())])
    rows, bad, _ = decoded("json", [b'{"t":"2013-01-01T05:00:00Z","d":"2013-01-02"}'], fields)
    assert bad == [False]
    assert (rows[0]["t"].isoformat(), rows[0]["d"].isoformat()) == ("2013-01-01T05:00:00+00:00", "2013-01-02")


def test_msgpack_maps_and_arrays():
    import msgspec

    pack = msgspec.msgpack.encode
    given = [pack({"a": 1, "s": "x"}), b"\xc1", pack({"a": "x", "s": 5}), pack([7, "y"]), pack({(1,): 2}), pack(5)]
    rows, bad, _ = decoded("msgpack", given)
    assert bad == [False, True, True, False, True, True]
    assert rows[0] == {"a": 1, "s": "x"}
    assert rows[2] == {"a": None, "s": "5"}
    assert rows[3] == {"a": 7, "s": "y"}


def ipc(**columns):
    table = pa.table(columns)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue().to_pybytes()


def test_an_arrow_message_is_as_many_rows_as_it_has():
    rows, bad, messages = decoded("arrow", [ipc(a=[1, 2], s=["x", "y"]), b"junk", ipc(a=[3])])
    assert [row["a"] for row in rows] == [1, 2, None, 3]
    assert bad == [False, False, True, False]
    assert messages.to_pylist() == [0, 0, 1, 2]


def test_fixed_records_need_no_decoding():
    import numpy as np

    records = np.array([(1.5, 7), (2.5, -1)], dtype=[("price", "<f8"), ("size", "<i4")])
    fields = pa.schema([("size", pa.int32()), ("price", pa.float64()), ("none", pa.int8())])
    raw = [records[0].tobytes(), b"short", records[1].tobytes()]
    rows, bad, _ = decoded("struct", raw, fields, dtype="price:<f8, size:<i4")
    assert bad == [False, True, False]
    assert [(row["price"], row["size"]) for row in rows] == [(1.5, 7), (None, None), (2.5, -1)]


@pytest.mark.parametrize("words", ["price", "price:<q9", ""])
def test_a_record_that_means_nothing_is_refused(words):
    with pytest.raises(ValueError, match=r"value\.dtype"):
        payload.record_dtype(words)

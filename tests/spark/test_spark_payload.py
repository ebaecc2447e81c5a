"""Payloads into typed columns, and what becomes of those that do not parse."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="pip install 'shmq[spark]'")

from shmq.spark import payload  # noqa: E402

RELAXED = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
FIELDS = pa.schema([("a", pa.int64()), ("s", pa.string())])


def decoded(kind, payloads, fields=FIELDS, **more):
    found = payload.decode(kind, pa.array(payloads, pa.binary()), fields, **more)
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
    b'{"a":1,"a":2}',
    b"\x00\xff",
]
GOOD = [
    (b'{"a":1,"s":"x"}', {"a": 1, "s": "x"}),
    (b' {"a":2}\r\n', {"a": 2, "s": None}),
    (b"{}", {"a": None, "s": None}),
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


def test_json_has_times_and_dates():
    fields = pa.schema([("t", pa.timestamp("us", "UTC")), ("d", pa.date32())])
    rows, bad, _ = decoded("json", [b'{"t":"2013-01-01T05:00:00Z","d":"2013-01-02"}'], fields)
    assert bad == [False]
    assert (rows[0]["t"].isoformat(), rows[0]["d"].isoformat()) == ("2013-01-01T05:00:00+00:00", "2013-01-02")


def test_msgpack_maps_and_arrays():
    import msgspec

    pack = msgspec.msgpack.encode
    rows, bad, _ = decoded("msgpack", [pack({"a": 1, "s": "x"}), b"\xc1", pack({"s": 5}), pack([7, "y"])])
    assert bad == [False, True, True, False]
    assert rows[0] == {"a": 1, "s": "x"}
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

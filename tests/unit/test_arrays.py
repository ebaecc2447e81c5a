"""Arrays: put as they are, given back as they were, without a copy; and tables, by Arrow's C interface, both ways."""

from __future__ import annotations

import array
import ctypes
import gc
import subprocess
import sys
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from support import in_child, share

import shmq

np = pytest.importorskip("numpy")

PADDED = np.dtype([("a", "u1"), ("b", "f8")], align=True)
ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    np.zeros((0, 3)),
    np.array(5),
    np.arange(10)[::2],
    np.arange(3)[::-1],
    np.array(["2024-01-01", "NaT"], "M8[ns]"),
    np.array([5], "m8[25s]"),
    np.zeros(3, [("a", "<f4"), ("b", "u1", (2, 2)), ("c", [("d", ">i2"), ("e", "S3")])]),
    np.zeros(3, PADDED),
    np.array(["ab", "c"]),
    np.array([b"ab"]),
    np.arange(3, dtype=">i4"),
    np.array([True, False]),
    np.arange(4, dtype="c16"),
    np.arange(8, dtype="f2"),
    np.zeros(2, "V4"),
]
BUFFERS = [
    (array.array("d", [1, 2]), np.array([1.0, 2.0])),
    (array.array("h"), np.zeros(0, "i2")),
    (memoryview(bytes(range(6))).cast("B", (2, 3)), np.arange(6, dtype="u1").reshape(2, 3)),
    ((ctypes.c_int32 * 3)(1, 2, 3), np.arange(1, 4, dtype="i4")),
    (memoryview(array.array("i", range(6)))[::2], np.array([0, 2, 4], "i4")),
]


def same(got, wanted):
    return got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes()


# ---------------------------------------------------------------- there and back
@pytest.mark.parametrize("wanted", ARRAYS, ids=lambda each: f"{each.dtype}-{each.shape}"[:40])
def test_an_array_comes_back_as_it_was_and_read_only(queue, wanted):
    index = queue.put(wanted, headers={"mine": 1}, key=b"k")
    message = queue[index]
    assert same(message.array, wanted)
    assert not message.array.flags.writeable
    assert message.headers["mine"] == 1
    assert len(message.payload) == wanted.nbytes


@pytest.mark.parametrize(("put", "wanted"), BUFFERS, ids=lambda each: type(each).__name__)
def test_so_does_whatever_has_numbers_in_a_buffer(queue, put, wanted):
    assert same(queue[queue.put(put)].array, wanted)


@settings(max_examples=share(150), deadline=None)
@given(wanted=st.one_of(arrays_of.arrays(arrays_of.nested_dtypes(), arrays_of.array_shapes(min_dims=0, min_side=0))))
def test_any_array_comes_back_or_is_refused(made_once, wanted):
    if wanted.dtype.hasobject or wanted.dtype.itemsize == 0:
        with pytest.raises(TypeError, match="cannot be given back"):
            made_once.put(wanted)
    else:
        assert same(made_once[made_once.put(wanted)].array, wanted)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    with shmq.open(tmp_path_factory.mktemp("arrays") / "q") as queue:
        yield queue


def test_a_batch_may_have_some(queue):
    items = [np.arange(3), b"bytes", array.array("f", [1]), bytearray(b"more")]
    indexes = queue.put_many(items, headers=[{"n": 0}, {"n": 1}, None, {"n": 3}])
    found = [queue[index] for index in indexes]
    assert same(found[0].array, items[0])
    assert same(found[2].array, np.array([1], "f4"))
    assert [message.headers.get("n") for message in found] == [0, 1, None, 3]
    assert [found[1].payload, found[3].payload] == [b"bytes", b"more"]
    for plain in found[1], found[3]:
        with pytest.raises(shmq.Mismatch, match=r"it was not put as one; numpy.frombuffer"):
            plain.array  # noqa: B018


@pytest.mark.parametrize("plain", [b"x", bytearray(b"x"), memoryview(b"x")], ids=lambda each: type(each).__name__)
def test_bytes_are_no_array(queue, plain):
    assert queue[queue.put(plain)].raw_headers is None


def test_what_takes_objects_takes_arrays_as_objects(path):
    with shmq.open(path, codec="pickle", trusted=True) as queue:
        assert same(queue[queue.put(np.arange(3))].payload, np.arange(3))


def test_a_message_is_passed_on_with_what_it_is_an_array_of(queue, tmp_path):
    message = queue[queue.put(np.arange(6).reshape(3, 2))]
    with shmq.open(tmp_path / "other") as other:
        assert same(other[other.put(message.view, headers=message.headers)].array, np.arange(6).reshape(3, 2))


@pytest.mark.parametrize("wrong", [np.array([object()]), np.ma.array([1], mask=[True]), np.zeros(1, "V0")])
def test_what_bytes_cannot_be_is_refused(queue, wrong):
    with pytest.raises(TypeError, match=r"cannot be given back|mask would be lost"):
        queue.put(wrong)
    with pytest.raises(TypeError):
        queue.put_many([b"x", wrong])
    assert len(queue) == 0


HOSTILE = [
    {"shmq.dtype": "|O", "shmq.shape": [1]},
    {"shmq.dtype": "O", "shmq.shape": [1]},
    {"shmq.dtype": 7, "shmq.shape": [1]},
    {"shmq.dtype": None, "shmq.shape": [1]},
    {"shmq.dtype": "<f8,O", "shmq.shape": [1]},
    {"shmq.dtype": [["a", "|O"]], "shmq.shape": [1]},
    {"shmq.dtype": [["a", "<f8"]] * 3, "shmq.shape": [1]},
    {"shmq.dtype": [["a", "<f8", [-1]]], "shmq.shape": [1]},
    {"shmq.dtype": [["a", "<f8", [1 << 40, 1 << 40]]], "shmq.shape": [1]},
    {"shmq.dtype": [["a", "<f8", "1"]], "shmq.shape": [1]},
    {"shmq.dtype": [[7, "<f8"]], "shmq.shape": [1]},
    {"shmq.dtype": [], "shmq.shape": [1]},
    {"shmq.dtype": "<f8"},
    {"shmq.dtype": "<f8", "shmq.shape": None},
    {"shmq.dtype": "<f8", "shmq.shape": 1},
    {"shmq.dtype": "<f8", "shmq.shape": [-1]},
    {"shmq.dtype": "<f8", "shmq.shape": [True]},
    {"shmq.dtype": "<f8", "shmq.shape": [1.0]},
    {"shmq.dtype": "<f8", "shmq.shape": ["1"]},
    {"shmq.dtype": "<f8", "shmq.shape": [2]},
    {"shmq.dtype": "<f8", "shmq.shape": [1 << 62, 1 << 62]},
    {"shmq.dtype": "<f8", "shmq.shape": [1] * 100},
    {"shmq.dtype": "<f8", "shmq.shape": [1], "shmq.order": "K"},
    {"shmq.dtype": "<f8", "shmq.shape": [1], "shmq.order": 7},
    {"shmq.dtype": "<U999999999", "shmq.shape": [0]},
    {"shmq.dtype": "<f7", "shmq.shape": [1]},
]


@pytest.mark.parametrize("headers", HOSTILE, ids=lambda each: str(each)[15:60])
def test_headers_that_do_not_fit_are_said_and_the_bytes_are_there(queue, headers):
    message = queue[queue.put(bytes(range(8)), headers=headers)]
    with pytest.raises(shmq.Corrupt, match=r"message 0 in .*its headers do not fit it: .*message.view has its bytes"):
        message.array  # noqa: B018
    assert bytes(message.view) == bytes(range(8))


def nested(depth):
    return "<f8" if depth == 0 else [["a", nested(depth - 1)]]


def test_records_in_records_end_somewhere(queue):
    assert queue[queue.put(bytes(8), headers={"shmq.dtype": nested(8), "shmq.shape": [1]})].array.shape == (1,)
    with pytest.raises(shmq.Corrupt, match="no type of elements"):
        queue[queue.put(bytes(8), headers={"shmq.dtype": nested(9), "shmq.shape": [1]})].array  # noqa: B018


# ---------------------------------------------------------------- in place
def test_room_for_an_array_is_filled_in_place(queue):
    with queue.reserve(shape=(3, 4), dtype="f4", headers={"mine": 1}) as slot:
        slot.array[:] = 7
    with queue.reserve(shape=5, dtype=[("a", "i4")]) as slot:
        slot.array["a"] = range(5)
    assert same(queue[0].array, np.full((3, 4), 7, "f4"))
    assert queue[0].headers["mine"] == 1
    assert queue[1].array["a"].tolist() == list(range(5))
    with queue.reserve(8) as slot, pytest.raises(shmq.Mismatch, match="reserved as bytes"):
        slot.array  # noqa: B018


@pytest.mark.parametrize("given", [{}, {"shape": 3}, {"dtype": "f4"}, {"nbytes": 3, "shape": 3, "dtype": "u1"}])
def test_room_is_asked_for_in_one_way(queue, given):
    with pytest.raises(TypeError, match="a number of bytes, or shape= and dtype="):
        queue.reserve(**given)


def test_an_array_that_was_kept_stays_what_it_was(make):
    """While its chunk is retired, and its queue closed; it keeps the file mapped, and only that."""
    queue = make(chunk_bytes=65536)
    wanted = np.arange(4000)
    queue.put(wanted)
    with queue.consumer("c") as consumer:
        kept = consumer.get(timeout=0).array
        for _ in range(20):
            queue.put(wanted + 1)
            consumer.get(timeout=0)
    queue.close()
    gc.collect()
    assert same(kept, wanted)


def test_another_process_has_it_too(queue):
    queue.put(np.arange(12, dtype="u2").reshape(3, 4))

    def look():
        with shmq.open(queue.path) as mine, mine.consumer("c") as consumer:
            return consumer.get(timeout=30).array.sum() == 66

    assert in_child(look)


def test_who_puts_bytes_does_not_pay_for_arrays(path):
    words = f"""
import sys, shmq
with shmq.open({str(path)!r}) as queue:
    queue.put(b"x"); queue.put(bytearray(b"x")); queue.put_many([b"x", bytearray(b"y")]); queue.reserve(8).commit()
    assert not {{"numpy", "shmq.arrays"}} & set(sys.modules)
    queue.put(memoryview(b"x"))
    assert "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", words], check=True)


# ---------------------------------------------------------------- tables
def test_a_queue_gives_itself_to_arrow_as_it_is_now(queue):
    arrow = pytest.importorskip("pyarrow")
    queue.put_many([b"a", b"b"], keys=[b"k", None])
    stream = arrow.RecordBatchReader.from_stream(queue)
    queue.put(b"later")
    table = stream.read_all()
    assert table.column_names == ["index", "time", "key", "type", "payload"]
    assert table["payload"].to_pylist() == [b"a", b"b"]
    assert arrow.table(queue).num_rows == 3
    assert arrow.table(queue.read_arrow(columns=["index"])).column_names == ["index"]


def test_what_it_gives_is_not_retired_before_it_is_read(make):
    arrow = pytest.importorskip("pyarrow")
    queue = make(chunk_bytes=65536)
    consumer = queue.consumer("c")
    queue.put_many([bytes(1000)] * 500)
    stream = arrow.RecordBatchReader.from_stream(queue)
    while consumer.lag:
        consumer.take_many(100)
    queue.put_many([bytes(1000)] * 500)
    assert stream.read_all().num_rows == 500
    del stream
    gc.collect()
    while consumer.lag:
        consumer.take_many(100)
    queue.put(b"x")
    consumer.take()
    assert queue.first_index > 0


def test_what_speaks_arrow_can_be_put(queue):
    arrow = pytest.importorskip("pyarrow")

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return arrow.table({"payload": ["a", "b"]}).__arrow_c_stream__(requested_schema)

    class Array:
        def __arrow_c_array__(self, requested_schema=None):
            return arrow.record_batch({"payload": ["c"]}).__arrow_c_array__(requested_schema)

    pieces = arrow.concat_tables([arrow.table({"payload": ["d"]}), arrow.table({"payload": ["e"]})])
    assert queue.put_arrow(Stream()) == range(2)
    assert queue.put_arrow(Array()) == range(2, 3)
    assert queue.put_arrow(pieces) == range(3, 5)
    assert queue.put_arrow(pieces.slice(0, 0)) == range(5, 5)
    with pytest.raises(shmq.TooMany, match="9000 messages at once"):
        queue.put_arrow(arrow.table({"payload": ["x"] * 9000}))
    with queue.stage() as staged:
        assert staged.put_arrow(arrow.table({"payload": ["x"] * 9000})) == range(9000)
    assert [message.payload for message in queue.reader()] == [b"a", b"b", b"c", b"d", b"e"]


def test_duckdb_asks_a_queue(queue):
    duckdb = pytest.importorskip("duckdb")
    queue.put_many([b"a", b"bcd"], keys=[b"k", b"l"])
    rows = duckdb.sql("select key, octet_length(payload) from queue order by index").fetchall()
    assert rows == [(b"k", 1), (b"l", 3)]


def test_found_while_another_thread_imported_numpy_a_put_was_an_attribute_error(queue, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", types.ModuleType("numpy"))  # as it is at first
    index = queue.put(array.array("d", [1.0]))
    assert queue[index].headers == {"shmq.dtype": "<f8", "shmq.shape": [1]}
    queue.put(memoryview(b"x"))


# ---------------------------------------------------------------- what outside attacks found
def test_found_fields_that_overlap_were_told_in_the_words_of_numpy(queue):
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i4"], "offsets": [0, 2], "itemsize": 8})
    with pytest.raises(TypeError, match="cannot be given back from bytes"):
        queue.put(np.zeros(3, overlapping))
    with pytest.raises(TypeError, match="cannot reserve room for"):
        queue.reserve(shape=3, dtype=overlapping)
    assert len(queue) == 0


def test_found_room_for_an_array_where_payloads_have_a_codec_made_what_nobody_could_read(make):
    queue = make(codec="json")
    with pytest.raises(TypeError, match="its payloads are of codec 'json', and an array is bytes"):
        queue.reserve(shape=3, dtype="i4")
    assert len(queue) == 0


def test_found_a_shape_as_long_as_its_headers_was_told_whole(queue):
    queue.put(b"12345678", headers={"shmq.dtype": "<i8", "shmq.shape": [1] * 9000 + [2], "shmq.order": "C"})
    with pytest.raises(shmq.Corrupt) as caught:
        queue[0].array  # noqa: B018
    assert len(str(caught.value)) < 1000


def test_found_what_is_no_batch_was_told_as_a_type(queue):
    with pytest.raises(TypeError, match="is wanted, not NoneType"):
        queue.put_arrow(None)

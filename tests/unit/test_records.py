"""Payloads that are records of numbers, each field a column: what numpy makes of the same payloads."""

from __future__ import annotations

import random

import pytest
from support import chunk_files, flip, patch, words

import shmq

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

ALL = np.dtype([
    ("a", "<i8"), ("b", "<u1"), ("c", "<f4"), ("d", "<i2"), ("e", "<f8"), ("f", "<u4"), ("g", "<f2"), ("h", "i1"),
    ("i", "<u8"), ("j", "<u2"), ("k", "<i4"),
])  # fmt: skip
PLAIN = np.dtype([("user", "<i8"), ("amount", "<f8")])


def made(dtype, count, seed=1):
    """Payloads of any bits, but for NaN, which nothing is equal to."""
    noise = random.Random(seed)
    found = []
    while len(found) < count:
        payload = noise.randbytes(dtype.itemsize)
        (record,) = np.frombuffer(payload, dtype)
        if not any(np.isnan(each) for each in record.tolist()):
            found.append(payload)
    return found


def rows(batches):
    """Tuples of what is in these batches, each of which is whole and owns its memory."""
    found = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows > 0
        assert not any(each.address % 64 for column in batch.columns for each in column.buffers() if each)
        columns = [
            (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
            for column in batch.columns
        ]
        found += zip(*columns, strict=True)
    return found


def expected(messages, dtype, names=("index",)):
    """The same by a reader, message by message."""
    take = {"index": lambda m: m.index, "time": lambda m: m.time_ns, "type": lambda m: m.type}
    found = []
    for message in messages:
        payload = bytes(message.view)
        whole = len(payload) == dtype.itemsize
        fields = np.frombuffer(payload, dtype)[0].tolist() if whole else [None] * len(dtype.names)
        found.append((*(take[name](message) for name in names), *fields))
    return found


def fill(queue, dtype, count, seed=1):
    """Records alone and in batches; with keys, headers, times and types; padding, and payloads that are none."""
    noise = random.Random(seed)
    payloads = iter(made(dtype, count * 10, seed))
    for number in range(count):
        kind = noise.randrange(12)
        if kind == 0:
            queue.reserve(noise.randrange(100)).abort()
        elif kind == 1:
            queue.put(noise.randbytes(noise.choice([0, 1, dtype.itemsize - 1, dtype.itemsize + 1, 200])))
        elif kind == 2:
            queue.put(next(payloads), key=b"k", headers={"n": number}, type=7)
        elif kind == 3:
            queue.put(next(payloads), time_ns=noise.randrange(1 << 40), type=noise.randrange(65536), ttl=3600)
        else:
            queue.put_many([next(payloads) for _ in range(noise.randrange(1, 10))])


@pytest.mark.parametrize("options", [{}, {"chunk_bytes": 1 << 16, "index_spacing": 4}, {"checksum": False}])
@pytest.mark.parametrize("dtype", [ALL, PLAIN, ALL[["d", "a"]], np.dtype([("x", "<i2")])], ids=str)
def test_the_fields_are_those_that_numpy_finds(make, options, dtype):
    queue = make(**options)
    fill(queue, dtype, 700)
    messages = list(queue.reader())
    assert rows(queue.read_arrow(record=dtype)) == expected(messages, dtype)
    noise = random.Random(2)
    for _ in range(30):
        start, stop = sorted(noise.randrange(queue.next_index + 2) for _ in range(2))
        chosen = noise.sample(["index", "time", "type"], noise.randrange(4))
        got = rows(queue.read_arrow(start, stop, chosen, record=dtype, max_rows=noise.randrange(1, 300)))
        assert got == expected(queue.reader(start, stop), dtype, chosen), (start, stop, chosen)


def test_the_schema_has_each_number_as_it_is(queue):
    schema = queue.read_arrow(record=ALL, columns=["time", "type"]).schema
    kinds = ["int64", "uint8", "float", "int16", "double", "uint32", "halffloat", "int8", "uint64", "uint16", "int32"]
    assert schema.names == ["time", "type", *ALL.names]
    assert list(map(str, schema.types)) == ["timestamp[ns, tz=UTC]", "uint16", *kinds]
    assert queue.read_arrow(record=PLAIN).schema.names == ["index", "user", "amount"]
    assert queue.read_arrow(record=PLAIN[["amount"]], columns=[]).schema.names == ["amount"]
    assert list(queue.read_arrow(record=PLAIN)) == []


def test_times_bound_it_as_they_bound_a_reader(queue):
    payloads = made(PLAIN, 9)
    queue.put_many(payloads, times_ns=[each * 1_000_000_000 for each in range(9)])
    for start in range(10):
        for stop in range(start, 10):
            assert rows(queue.read_arrow(float(start), float(stop), record=PLAIN)) == expected(
                queue.reader(float(start), float(stop)), PLAIN
            )


def test_a_batch_has_as_many_rows_as_it_may_whatever_their_bytes(queue):
    queue.put_many(made(PLAIN, 50))
    assert [batch.num_rows for batch in queue.read_arrow(record=PLAIN, max_rows=7)] == [7] * 7 + [1]
    assert [batch.num_rows for batch in queue.read_arrow(record=PLAIN, max_bytes=1)] == [50]


def outcome(queue, **given):
    """The indexes that come, and what ends it."""
    found = []
    try:
        for batch in queue.read_arrow(columns=given.pop("columns", ["index"]), **given):
            found += batch["index"].to_pylist()
    except shmq.Corrupt as problem:
        return found, str(problem)
    return found, None


def test_any_flipped_bit_is_found_where_a_reader_of_payloads_finds_it(make, path):
    """Four at once, too: in each of their places, whatever part of the message it is in."""
    queue = make()
    queue.put_many(made(PLAIN, 11))
    file, span = chunk_files(path)[0], words(path)[1].span * 8
    begin, end = (words(path)[number].position for number in (1, 9))
    noise = random.Random(3)
    for position in range(begin, end):
        bit = noise.randrange(8)
        flip(file, position, bit)
        plainly = outcome(queue, columns=["index", "payload"])
        assert outcome(queue, record=PLAIN) == plainly, (position, bit)
        assert plainly[1] is not None or (position - begin) % span < 8  # whose it was is nobody's loss
        flip(file, position, bit)
    assert outcome(queue, record=PLAIN) == (list(range(11)), None)


def test_whatever_is_written_over_it_a_reader_of_payloads_says_the_same(make, path):
    queue = make()
    queue.put_many(made(PLAIN, 23))
    file, noise = chunk_files(path)[0], random.Random(4)
    begin, end = words(path)[0].position, words(path)[-1].position + 200
    for number in range(300):
        at, length = noise.randrange(begin, end), noise.choice([1, 2, 4, 8, 64, 300])
        before = file.read_bytes()[at : at + length]
        patch(file, at, noise.choice([bytes(length), b"\xff" * length, noise.randbytes(length)]))
        assert outcome(queue, record=PLAIN) == outcome(queue, columns=["index", "payload"]), (number, at, length)
        patch(file, at, before)
    assert outcome(queue, record=PLAIN) == (list(range(23)), None)


@pytest.mark.parametrize("number", range(4))
def test_lengths_that_lie_are_not_believed(make, path, number):
    queue = make()
    queue.put_many(made(PLAIN, 4))
    each = words(path)[number]
    for length in (0, 39, 40, 57, 1 << 20, (1 << 32) - 1):
        patch(chunk_files(path)[0], each.position + 8, length.to_bytes(4, "little"))
        found, said = outcome(queue, record=PLAIN)
        assert found == list(range(number))
        assert f"position {each.position}" in said


def test_near_the_end_of_a_chunk_nothing_is_read_beyond_it(make, path):
    """Records until the chunk is full, and of each size some: the last four end before its SEAL, or are not four."""
    for size in range(1, 40, 3):
        dtype = np.dtype([("x", "i1"), ("rest", f"V{size}")])[["x"]]
        with shmq.open(f"{path}-{size}", options=shmq.Options(chunk_bytes=1 << 16)) as queue:
            queue.put_many([bytes([number % 128]) * (size + 1) for number in range(2000)])
            assert rows(queue.read_arrow(record=dtype, columns=[])) == [(number % 128,) for number in range(2000)]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ([("x", "<i4")], "a numpy.dtype with fields is wanted, not list"),
        (np.dtype("<i4"), "a dtype with fields is wanted"),
        (np.dtype([("x", ">i4")]), "field 'x' is >i4; numbers of up to 8 bytes in little-endian"),
        (np.dtype([("x", "S4")]), r"field 'x' is \|S4"),
        (np.dtype([("x", "?")]), "field 'x' is bool"),
        (np.dtype([("x", "<i4", (2,))]), "field 'x' is"),
        (np.dtype([("x", PLAIN)]), "field 'x' is"),
        (np.dtype([("x", "<f16")]), "field 'x' is float128"),
        (np.dtype([("index", "<i4")]), "two columns called 'index'"),
    ],
    ids=str,
)
def test_what_is_no_record_of_numbers_is_refused(queue, record, said):
    with pytest.raises((TypeError, ValueError), match=said):
        queue.read_arrow(record=record)


@pytest.mark.parametrize("columns", [["payload"], ["key"], ["headers"], ["attempts"], ["time", "time"], ["user"]])
def test_beside_a_record_there_are_only_columns_of_numbers(queue, columns):
    with pytest.raises(ValueError, match="some of index, time, type beside a record, each once"):
        queue.read_arrow(columns=columns, record=PLAIN)

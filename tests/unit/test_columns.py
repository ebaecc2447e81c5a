"""Messages column by column: the same messages as reader() delivers, in the same order, ending at the same places."""

import random

import pytest
from support import chunk_files, flip

import shmq

NAMES = ("index", "time_ns", "key", "type", "payload", "headers")


def rows(columns):
    """Tuples of what is in these columns, all equally long."""
    found = []
    for each in columns:
        assert min(map(len, each.values())) > 0
        found += zip(*each.values(), strict=True)
    return found


def expected(messages, names=NAMES):
    """The same tuples, message by message."""
    return [tuple(bytes(m.view) if name == "payload" else getattr(m, name) for name in names) for m in messages]


def fill(queue, count):
    """Messages of all kinds, with padding between them."""
    noise = random.Random(3)
    for number in range(count):
        if noise.randrange(9) == 0:
            queue.reserve(noise.randrange(100)).abort()
        queue.put(
            noise.randbytes(noise.choice([0, 1, 7, 8, 9, 40, 200])),
            key=noise.choice([None, b"", b"k", b"key of some length"]),
            type=noise.choice([0, 1, 65535]),
            time_ns=noise.choice([None, -5, 1 << 62]),
            headers=noise.choice([None, {}, {"n": number}, {"source": {"index": number}}]),
        )


@pytest.fixture
def queue(tmp_path):
    with shmq.open(str(tmp_path / "q"), options=shmq.Options(chunk_bytes=1 << 16)) as queue:
        fill(queue, 3000)
        yield queue


def test_columns_are_what_a_reader_delivers(queue):
    assert rows(queue.read_columns()) == expected(queue.reader())
    assert len(chunk_files(queue.path)) > 1


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (7, 8), (100, 2000), (-50, None), (2999, 1 << 40)])
@pytest.mark.parametrize("names", [NAMES, ("payload",), ("headers", "index"), "key"])
def test_any_part_and_any_columns(queue, start, stop, names):
    found = rows(queue.read_columns(start, stop, names, max_rows=64))
    assert found == expected(queue.reader(start, stop), (names,) if isinstance(names, str) else names)


def test_a_large_message_comes_alone_and_others_by_bytes(queue):
    sizes = [sum(map(len, each["payload"])) for each in queue.read_columns(columns=["payload"], max_bytes=100)]
    assert max(sizes) > 100
    assert rows(queue.read_columns(max_bytes=1)) == expected(queue.reader())


def test_it_ends_before_what_is_claimed(queue):
    slot = queue.reserve(10)
    queue.put(b"behind")
    assert rows(queue.read_columns()) == expected(queue.reader())
    slot.commit()
    assert rows(queue.read_columns(columns="payload"))[-1] == (b"behind",)


def test_wrong_wishes_are_refused(queue):
    for wish in (["colour"], ["index", "index"], []):
        with pytest.raises(ValueError, match="each once"):
            queue.read_columns(columns=wish)
    with pytest.raises(ValueError, match="max_rows=0: from 1 to"):
        queue.read_columns(max_rows=0)


def test_headers_of_different_messages_are_different_dicts(tmp_path):
    with shmq.open(str(tmp_path / "q")) as queue:
        queue.put_many([b"a", b"b"])
        (found,) = queue.read_columns()
        found["headers"][0]["mine"] = 1
        assert found["headers"][1] == {}


def test_closed_it_says_so(queue):
    columns = queue.read_columns()
    columns.close()
    with pytest.raises(shmq.Closed):
        next(columns)


def test_the_same_headers_for_all_are_on_all(tmp_path):
    """One mapping given for every message is encoded once, and each has it; so with None."""
    with shmq.open(str(tmp_path / "q")) as queue:
        queue.put_many([b"a", b"b", b"c"], headers=[{"of": "all"}] * 3)
        queue.put_many([b"a", b"b"], headers=[None, None])
        one = {"of": "two"}
        queue.put_many([b"a", b"b", b"c"], headers=[one, None, one])
        found = [message.headers for message in queue.reader()]
    assert found == [{"of": "all"}] * 3 + [{}, {}] + [one, {}, one]


def test_a_damaged_message_is_refused_behind_what_came_before(tmp_path):
    with shmq.open(str(tmp_path / "q")) as queue:
        for number in range(10):
            queue.put(b"payload %d" % number)
    file = chunk_files(str(tmp_path / "q"))[0]
    at = file.read_bytes().index(b"payload 6")
    flip(file, at)
    with shmq.open(str(tmp_path / "q")) as queue:
        columns = queue.read_columns(columns="payload")
        assert next(columns)["payload"] == [b"payload %d" % number for number in range(6)]
        with pytest.raises(shmq.Corrupt):
            next(columns)

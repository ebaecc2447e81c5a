"""QewQew in place: what is put and taken under its lock, and what a stop at any step leaves."""

import contextlib
import itertools
import os
import random
import signal
from pathlib import Path

import pytest
from format_fixtures import place
from support import Child, hold_until_killed, start

from shmq import formats
from shmq.errors import BadFormat, Busy, Closed, Corrupt, Forked, NotFound, TooLarge, TooMany
from shmq.formats import Entry, qewqew


def payloads(path, **options):
    return [entry.payload for entry in qewqew.read(path, **options)]


def drained(header):
    """What there is, taken by one who opens it."""
    with qewqew.open(header) as queue:
        return list(iter(queue.take, None))


def test_elements_are_put_and_taken_in_order_through_chunks(tmp_path):
    header = tmp_path / "q"
    with qewqew.open(header, chunk_bytes=64, sync=False) as queue:
        assert (queue.peek(), queue.take()) == (None, None)
        queue.put_many(b"%d" % number for number in range(100))
        queue.put(b"")
        assert [queue.take() for _ in range(40)] == [b"%d" % number for number in range(40)]
        assert queue.peek() == b"40"
    assert (
        payloads(header) == payloads(header, as_program=True) == [*(b"%d" % number for number in range(40, 100)), b""]
    )
    assert {path.stat().st_size for path in tmp_path.glob("q.*")} == {64}
    assert qewqew.verify(header) == []
    with qewqew.open(header) as queue:
        assert queue.chunk_bytes == 64  # as its files are
        queue.put(b"x")
        assert list(iter(queue.take, None))[-2:] == [b"", b"x"]
    assert len(list(tmp_path.glob("q.*"))) == 1
    assert (payloads(header), payloads(header, as_program=True)) == ([], [])


def test_whatever_is_done_is_what_the_files_say(tmp_path):
    """Against a list; opened anew now and then, once in the middle of a call."""
    header, dice, wanted = tmp_path / "q", random.Random(5), []
    for _ in range(16):
        with qewqew.open(header, chunk_bytes=90, sync=False) as queue:
            for _ in range(dice.randrange(30)):
                if dice.random() < 0.35:
                    some = [dice.randbytes(dice.randrange(79)) for _ in range(dice.choice([1, 1, 5]))]
                    queue.put_many(some)
                    wanted += some
                else:
                    assert queue.take() == (wanted.pop(0) if wanted else None)
            with contextlib.suppress(ZeroDivisionError):
                queue.put_many(1 // number for number in (0,))
            assert queue.peek() == (wanted[0] if wanted else None)
        assert payloads(header) == payloads(header, as_program=True) == wanted
        assert qewqew.verify(header) == []


def test_a_queue_that_is_open_is_open_once(tmp_path):
    header = tmp_path / "q"

    def use(say, header):
        with qewqew.open(header):
            hold_until_killed(say)

    with qewqew.open(header) as queue, pytest.raises(Busy, match="nothing was changed"), qewqew.open(header):
        pass
    with pytest.raises(Closed):
        queue.put(b"x")
    with Child(use, header) as child:
        child.hear()
        with pytest.raises(Busy), qewqew.open(header):
            pass
        with pytest.raises(Busy):
            qewqew.repair(header, in_place=True)
    assert drained(header) == []


def test_a_forked_child_neither_uses_it_nor_gives_the_lock_back(tmp_path):
    header = tmp_path / "q"
    with qewqew.open(header) as queue:
        queue.put(b"x")

        def use():
            with pytest.raises(Forked):
                queue.take()
            queue.close()

        assert os.waitpid(start(use), 0)[1] == 0
        with pytest.raises(Busy), qewqew.open(header):
            pass
        assert queue.take() == b"x"


def test_what_does_not_fit_is_refused_and_what_was_before_it_is_in(tmp_path):
    header = tmp_path / "q"
    with qewqew.open(header, chunk_bytes=30) as queue, pytest.raises(TooLarge, match="the limit is 18"):
        queue.put_many([b"a", b"b" * 18, b"c" * 19, b"d"])
    assert payloads(header) == [b"a", b"b" * 18]
    for size in (11, 1 << 31):
        with pytest.raises(BadFormat), qewqew.open(header, chunk_bytes=size):
            pass
    with pytest.raises(BadFormat, match="elements up to 30"), qewqew.open(header, chunk_bytes=29):
        pass
    with pytest.raises(NotFound), qewqew.open(tmp_path / "nowhere" / "q"):
        pass


def test_a_chunk_that_nothing_leads_to_is_not_written_over(tmp_path):
    """The program would put its first element over it; here it is left for `repair`."""
    header = tmp_path / "q"
    qewqew.write(header, [Entry(b"lost")], chunk_bytes=30)
    header.write_bytes(bytes(2))
    with qewqew.open(header, chunk_bytes=30) as queue:
        queue.put(b"new")
    assert payloads(header) == payloads(header, as_program=True) == [b"new"]
    assert qewqew.repair(header, orphans=True).messages == 2


def test_ids_start_again_and_run_out(tmp_path, monkeypatch):
    header = tmp_path / "q"
    qewqew.write(header, [Entry(b"x" * 18)], chunk_bytes=30, first_chunk=qewqew.LAST_ID)
    with qewqew.open(header) as queue:
        queue.put(b"y" * 18)
        assert sorted(path.name for path in tmp_path.glob("q.*")) == ["q.1", "q.65534"]
        monkeypatch.setattr("shmq.formats.qewqew.opened.chunk_ids", lambda _: range(1, qewqew.LAST_ID + 1))
        place(tmp_path, {"q.2": b""})
        with pytest.raises(TooMany):
            queue.put(b"z" * 18)
    assert payloads(header) == [b"x" * 18, b"y" * 18]


@pytest.mark.parametrize("damage", ["cut", "missing", "cycle", "element"])
def test_a_damaged_queue_is_not_opened_and_not_changed(tmp_path, damage):
    header = tmp_path / "q"
    qewqew.write(header, [Entry(b"x" * 18)] * 3, chunk_bytes=30)
    chunk = tmp_path / "q.2"
    data = bytearray(chunk.read_bytes())
    if damage == "missing":
        chunk.unlink()
    elif damage == "cut":
        chunk.write_bytes(data[:20])
    elif damage == "cycle":
        data[8:10] = b"\0\1"
        chunk.write_bytes(data)
    else:
        first = bytearray((tmp_path / "q.1").read_bytes())
        first[10] = 9
        (tmp_path / "q.1").write_bytes(first)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(Corrupt, match="repair"), qewqew.open(header) as queue:
        queue.take()
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_what_a_program_leaves_that_is_stopped_with_a_new_chunk_is_used(tmp_path):
    """The pointers of its chunk are all zero; it would put the next element over them."""
    place(tmp_path, {"q": b"\0\1", "q.1": bytes(64)})
    with qewqew.open(tmp_path / "q") as queue:
        assert queue.peek() is None
        queue.put(b"x")
    assert payloads(tmp_path / "q") == payloads(tmp_path / "q", as_program=True) == [b"x"]


class Stopped(BaseException):
    """As if the process were killed there."""


class Steps:
    """System calls that are counted; at the last one and behind it nothing is done any more, or the half of a write."""

    def __init__(self, patch, left):
        self._left = left
        for name, of in (("unlink", Path), ("pwrite", os), ("ftruncate", os), ("open", os), ("fdatasync", os)):
            patch.setattr(of, name, self._counted(getattr(of, name), is_write=name == "pwrite"))

    def _counted(self, real, *, is_write):
        def step(*words, **more):
            self._left -= 1
            if self._left == 0 and is_write and len(words[1]) > 10:  # a pointer is written in one piece
                fd, data, at = words
                real(fd, data[: len(data) // 2], at)
            if self._left <= 0:
                raise Stopped
            return real(*words, **more)

        return step


CALLS = [["put", b"a" * 18], ["take"], ["put_many", [b"b", b"c", b"d" * 17, b"e" * 18]], *[["take"]] * 5, ["put", b"z"]]


def outcomes(before, verb, words):
    """What may be there after a call, as far as it has come; all of it last."""
    given = words[0] if verb == "put_many" else words
    return [before] + ([before + given[: n + 1] for n in range(len(given))] if given else [before[1:]])


def test_who_is_stopped_at_any_step_leaves_a_queue_that_opens(tmp_path, monkeypatch):
    """As before or after the call that it was in, for our reader and for the program's."""
    for steps in range(1, 200):
        header = tmp_path / str(steps) / "q"
        header.parent.mkdir()
        allowed = [[]]
        with monkeypatch.context() as patch, contextlib.suppress(Stopped):
            Steps(patch, steps)
            with qewqew.open(header, chunk_bytes=30) as queue:
                for verb, *words in CALLS:
                    allowed = outcomes(allowed[-1], verb, words)
                    getattr(queue, verb)(*words)
                    allowed = allowed[-1:]
            break
        assert payloads(header) in allowed
        assert payloads(header, as_program=True) in allowed
        assert drained(header) in allowed
    assert steps > 40


def test_who_is_killed_leaves_what_it_has_acknowledged(tmp_path):
    """Put and take by turns, in a process that is killed again and again: each element comes once, in order."""
    header, dice = tmp_path / "q", random.Random(7)

    def work(say, header, seed):
        dice = random.Random(seed)
        with qewqew.open(header, chunk_bytes=60, sync=False) as queue:
            say("open")
            number = 0
            while True:
                some = dice.randrange(1, 9)
                queue.put_many(b"%d %d" % (seed, number + more) for more in range(some))
                number += some
                for _ in range(dice.randrange(9)):
                    queue.take()

    before = []
    for seed in range(8):
        with Child(work, header, seed) as child:
            child.hear()
            child.speaks_within(dice.random() * 0.05)
            child.signal(signal.SIGKILL)
        found = payloads(header)
        assert found == payloads(header, as_program=True)
        numbers = [tuple(map(int, each.split())) for each in found]
        assert numbers == sorted(numbers)
        assert all(b[1] - a[1] == 1 for a, b in itertools.pairwise(numbers) if a[0] == b[0])
        before = found
    assert drained(header) == before


def test_the_verb_append_works_on_a_queue_too(tmp_path):
    qewqew.write(tmp_path / "q", [Entry(b"a")])
    assert formats.append(tmp_path / "q", [Entry(b"b"), Entry(b"c", time_ns=5)], format="qewqew") == 2
    assert payloads(tmp_path / "q") == [b"a", b"b", b"c"]

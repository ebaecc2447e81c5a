"""
One damaged word costs at most its own message: readers, verify and repair see the same, whichever bit it is.

What a word is for differs: a message alone, a batch's first, one inside it, one that was adopted, the queue's own, or
padding.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from support import DONE, META, PAD, chunk_bytes, chunk_files, drawn, make_unclean, patch, peek, records, words

import shmq

BITS = range(64)


class Place(NamedTuple):
    """A word to be damaged: in which file and where, and how many messages its damage may cost."""

    file: str
    position: int
    cost: int


def fill(path: str) -> dict[str, Place]:
    """A queue with every kind of word, all of them with whole messages before and behind."""
    options = shmq.Options(chunk_bytes=1 << 20, retention=shmq.Retention.forever())
    with shmq.open(path, options=options) as queue:
        for number in range(1400):  # so many that there is an index block among them
            queue.put(b"%06d" % number)
        queue.put_many([b"batch %d" % number for number in range(100)])
        queue.reserve(100).abort()
        for number in range(30):
            queue.put(b"x" * (number * 7 % 50))
        with queue.stage() as staged:
            staged.put_many([b"adopted %d" % number for number in range(60)])
            queue.adopt(staged)
        queue.put(b"after")
    return dict(_places(path))


def _places(path: str):
    for which, file in enumerate(chunk_files(path)):
        content = chunk_bytes(path, which)
        found = words(path, which, meta=True)
        done = [word for word in found if word.state == DONE]
        for word, record in zip(done, records(path, which), strict=True):
            payload = content[word.position + 40 : word.position + 60]
            if payload.startswith(b"000500"):
                yield "single", Place(file.name, word.position, 1)
            elif payload.startswith(b"batch 0"):
                yield "batch first", Place(file.name, word.position, record.batch)
            elif payload.startswith(b"batch 57"):
                yield "batch middle", Place(file.name, word.position, 1)
            elif payload.startswith(b"adopted 30"):
                yield "adopted", Place(file.name, word.position, 1)
        for word in found:
            if word.state == META and done and done[0].position < word.position < done[-1].position:
                yield "meta", Place(file.name, word.position, 0)
            elif word.state == PAD and word.count:
                yield "pad", Place(file.name, word.position, 0)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The queue, its places, and what is in it by index."""
    path = str(tmp_path_factory.mktemp("words") / "q")
    with pytest.MonkeyPatch.context() as patched:
        # Small ones have no index blocks among them.
        patched.setattr("shmq.storage.new_chunks.SMALLEST_CHUNK", 1 << 20)
        places = fill(path)
    with shmq.open(path, read_only=True) as queue:
        return path, places, {message.index: message.payload for message in queue.reader()}


def judge(path: str, truth: dict[int, bytes], cost: int) -> None:
    """The three see the same; that much is lost at most; and the repaired queue opens with exactly that, twice."""
    with shmq.open(path, read_only=True) as queue:
        reader = queue.reader(skip_corrupt=True)
        read = {message.index: message.payload for message in reader}
    assert read.items() <= truth.items()
    assert len(truth) - len(read) <= cost
    shutil.rmtree(f"{path}.repaired", ignore_errors=True)
    found = shmq.verify(path)
    done = shmq.repair(path)
    assert (found.messages, done.messages) == (len(read), len(read))
    assert found.lost == done.lost
    for _ in range(2):
        with shmq.open(done.path) as queue:
            assert {message.index: message.payload for message in queue.reader()} == read
            assert queue.recovery is None or not queue.recovery.aside
        assert shmq.verify(done.path)
        make_unclean(done.path)


@contextlib.contextmanager
def damaged(path: str, place: Place, word: int):
    """That word there; where it lies, for a copied directory is recovered when it is opened."""
    file = Path(path, "chunks", place.file)
    before = file.read_bytes()
    patch(file, place.position, word.to_bytes(8, "little"))
    try:
        yield
    finally:
        patch(file, 0, before)


@pytest.mark.parametrize("kind", ["single", "batch first", "batch middle", "adopted", "meta", "pad"])
def test_one_bit_of_a_word_costs_its_message_at_most(filled, kind):
    path, places, truth = filled
    place = places[kind]
    word = peek(Path(path, "chunks", place.file), place.position)
    failed = []
    for bit in drawn(BITS):
        with damaged(path, place, word ^ 1 << bit):
            try:
                judge(path, truth, place.cost)
            except (AssertionError, shmq.ShmqError) as problem:
                failed.append((bit, str(problem).splitlines()[0]))
            shutil.rmtree(f"{path}.repaired", ignore_errors=True)
    assert failed == []


@pytest.mark.parametrize("kind", ["single", "batch middle", "adopted"])
@pytest.mark.parametrize("state", [META, PAD])
@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("span", [1, 6, 13, 16000])
def test_a_word_that_says_it_is_no_message_costs_its_message_at_most(filled, kind, state, count, span):
    path, places, truth = filled
    with damaged(path, places[kind], state << 61 | count << 48 | 1 << 27 | span):
        judge(path, truth, places[kind].cost)

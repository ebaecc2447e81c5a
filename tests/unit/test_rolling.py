"""Of many producers that come to the end of a chunk at once, one makes the next; the others wait a moment for it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import time
import types

import pytest
from support import Child, hold_until_killed, turn_is_free

import shmq
from shmq.storage import files, new_chunks, turns


@pytest.fixture(autouse=True)
def nobody_was_waited_for(monkeypatch):
    monkeypatch.setattr(turns, "_vain_until", 0.0)


@pytest.fixture
def folder(tmp_path):
    with files.open_directory(str(tmp_path)) as fd:
        yield fd


def holds(say, path, make=None):
    """It has the turn, and makes that file when it is told to (or nothing), and stays."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    say("mine")
    if make is not None:
        time.sleep(0.02)
        open(os.path.join(path, make), "x").close()
    hold_until_killed(say)


@contextlib.contextmanager
def turn_for(folder, name):
    with turns.opened(folder) as turn:
        yield turns.is_mine(turn, name)


def test_whoever_is_first_makes_it_and_whoever_is_next_finds_it(folder, tmp_path):
    with turn_for(folder, "next") as mine:
        assert mine
        assert not turn_is_free(tmp_path)
        (tmp_path / "next").touch()
    assert turn_is_free(tmp_path)
    with turn_for(folder, "next") as mine:
        assert not mine
    assert turn_is_free(tmp_path)


def test_what_another_one_is_making_is_waited_for(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE", 60)
    with Child(holds, tmp_path, "next") as other:
        assert other.hear() == "mine"
        with turn_for(folder, "next") as mine:
            assert not mine
            assert (tmp_path / "next").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_whoever_is_gone_or_stopped_keeps_nobody(folder, tmp_path, number):
    with Child(holds, tmp_path) as other:
        assert other.hear() == "mine"
        other.signal(number)
        if number == signal.SIGKILL:
            other.join()
        with turn_for(folder, "next") as mine:
            assert mine


def test_after_a_wait_in_vain_there_is_none_for_a_while(folder, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(turns, "time", types.SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    with Child(holds, tmp_path) as other:
        assert other.hear() == "mine"
        with turn_for(folder, "next"):
            assert slept
        slept.clear()
        with turn_for(folder, "next") as mine:
            assert mine
            assert not slept
        monkeypatch.setattr(turns, "_vain_until", 0.0)
        with turn_for(folder, "next"):
            assert slept


def test_what_a_handler_raises_while_it_waits_gives_the_turn_back(folder, tmp_path, monkeypatch):
    def raises(*_):
        raise KeyboardInterrupt

    with Child(holds, tmp_path) as other:
        assert other.hear() == "mine"
        monkeypatch.setattr(turns, "time", types.SimpleNamespace(monotonic=time.monotonic, sleep=raises))
        with pytest.raises(KeyboardInterrupt), turn_for(folder, "next"):
            pass
    monkeypatch.setattr(files, "is_there", raises)
    with pytest.raises(KeyboardInterrupt), turn_for(folder, "next"):
        pass
    assert turn_is_free(tmp_path)


def test_where_there_are_no_such_locks_each_makes_it(folder, monkeypatch):
    def refuses(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(turns.fcntl, "flock", refuses)
    with turn_for(folder, "next") as mine:
        assert mine


def test_a_put_that_rolls_goes_on_behind_another_ones_chunk_or_without_it(path, monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE", 0.05)
    with shmq.open(path) as queue, Child(holds, f"{path}/chunks") as other:
        assert other.hear() == "mine"
        for number in range(3_000):
            assert queue.put(b"%d" % number) == number
        assert [bytes(message.payload) for message in queue.reader(start=0)] == [b"%d" % i for i in range(3_000)]


@pytest.mark.parametrize("alone", [True, False])
def test_a_used_file_is_taken_without_a_turn_by_whoever_made_the_chunk_before(queue, alone, monkeypatch):
    """Where one process puts, a roll asks nobody."""
    entered, renewed, real = [], [], turns.is_mine
    monkeypatch.setattr(turns, "is_mine", lambda *given: entered.append(given) or real(*given))
    home = queue._session.home
    queue.put(b"first")
    entered.clear()
    (sequence, base), *_ = queue._session.chain().names()
    answer = new_chunks.make_chunk(
        home, base + 1, sequence + 1, renew=lambda *sizes: renewed.append(sizes) or True, alone=alone
    )
    assert answer
    assert len(renewed) == 1
    assert len(entered) == (not alone)


def test_a_child_that_is_forked_in_somebodys_turn_does_not_keep_it(folder, tmp_path):
    with turns.opened(folder) as turn:
        assert turns.is_mine(turn, "next")
        child = Child(hold_until_killed)
        assert child.hear() == "ready"
        assert not turn_is_free(tmp_path)
    with child:
        assert turn_is_free(tmp_path)


def test_found_a_handler_waited_for_the_turn_of_the_put_that_it_had_interrupted(folder, tmp_path, monkeypatch):
    """Each such put took a tenth of a second, and with a signal each 50 ms none ever came through."""

    def slept(_):
        raise AssertionError("it waits for itself")

    monkeypatch.setattr(turns, "time", types.SimpleNamespace(monotonic=time.monotonic, sleep=slept))
    with turn_for(folder, "next") as mine, turn_for(folder, "next") as of_a_handler:
        assert mine
        assert of_a_handler
    assert turns._vain_until == 0.0
    with Child(holds, tmp_path) as other:  # alone again, it waits for others
        assert other.hear() == "mine"
        with pytest.raises(AssertionError, match="waits"), turn_for(folder, "next"):
            pass


def test_a_handler_that_puts_comes_through_however_often_it_is_called(path):
    with shmq.open(path, chunk_bytes=65536) as queue:
        beats = []
        before = signal.signal(signal.SIGALRM, lambda *_: beats.append(queue.put(b"beat")))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            while queue.put(b"x" * 400) < 30_000 or len(beats) < 10:
                pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert sum(each.payload == b"beat" for each in queue.reader(start=0)) == len(beats)


def test_a_put_waits_for_no_turn_beyond_its_timeout(path, monkeypatch):
    slept = []
    monkeypatch.setattr(turns, "time", types.SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    with shmq.open(path) as queue, Child(holds, f"{path}/chunks") as other:
        assert other.hear() == "mine"
        for _ in range(1_000):
            queue.put(bytes(100), timeout=0)
        assert not slept
        assert turns._vain_until == 0.0
        for _ in range(5_000):
            queue.put(bytes(100))
        assert slept

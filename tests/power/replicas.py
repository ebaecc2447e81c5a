"""
A queue that follows another one, and a power cut of both.

    a --> b

Both lie in one folder, so a cut leaves of each any part, whatever it leaves of the other: as when both machines lose
their power at once. The judge opens both, b first. What b had said to have on its disk is there; all that is in b is
in `a`, at its place (R4); b is of the epoch that it was of (R9); and it goes on behind a recovery of `a`, and has all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
from typing import TYPE_CHECKING, Any

import shmq
from shmq.replica import follower, source
from shmq.storage import directory

from .history import History, Recorder, State
from .judge import another_boot, check
from .workloads import CHUNK_BYTES

if TYPE_CHECKING:
    from .shim import Shim

SOURCE, FOLLOWER = "a", "b"


@dataclasses.dataclass(frozen=True)
class Profile:
    """What kind of queue is followed."""

    name: str
    durability: str | shmq.Durability
    steps: int = 60


PROFILES = (
    Profile("replica process", "process"),
    Profile("replica sync", "sync"),
    Profile("replica replicated", shmq.Durability.replicated(1, (FOLLOWER,), SOURCE)),
)


@dataclasses.dataclass(frozen=True)
class Doing:
    """What is done from now on, and up to which index the follower has said to have all on its disk."""

    doing: str
    acknowledged: int


class Work:
    """One process that puts, and replicates in between."""

    def __init__(self, profile: Profile, root: str, recorder: Recorder, seed: int) -> None:
        self._profile = profile
        self._root = root
        self._recorder = recorder
        self._random = random.Random(seed)
        self._number = 0
        self._acknowledged = 0
        self._queue = shmq.open(f"{root}/{SOURCE}", durability=profile.durability, chunk_bytes=CHUNK_BYTES)
        self._ends: list[Any] = []
        self._waits = isinstance(profile.durability, shmq.Durability)

    def go(self) -> None:
        """Do all of it."""
        for _ in range(self._profile.steps):
            verb = self._random.choices(
                [self._put, self._put_many, self._adopt, self._sync, self._take, self._replicate, self._leave],
                [6, 3, 1, 1, 2, 8, 1],
            )[0]
            self._recorder.say(Doing(verb.__name__, self._acknowledged))
            verb()
        self._recorder.say(Doing("nothing", self._acknowledged))

    def close(self) -> None:
        """Let go of both."""
        self._leave()
        self._queue.close()

    def _payload(self) -> bytes:
        self._number += 1
        return b"%d " % self._number * self._random.randrange(1, 60)

    def _pending(self) -> contextlib.AbstractContextManager[Any]:
        """Where puts wait for the follower, it gets what is put only behind that."""
        return contextlib.suppress(shmq.SyncPending) if self._waits else contextlib.nullcontext()

    def _put(self) -> None:
        with self._pending():
            self._queue.put(self._payload(), timeout=0 if self._waits else None)

    def _put_many(self) -> None:
        with self._pending():
            payloads = [self._payload() for _ in range(self._random.randrange(1, 40))]
            self._queue.put_many(payloads, timeout=0 if self._waits else None)

    def _adopt(self) -> None:
        if self._waits:  # as long as that takes, and nobody else is here
            return
        with self._queue.stage() as staged:
            for _ in range(self._random.randrange(1, 200)):
                staged.put(self._payload())
            self._queue.adopt(staged)

    def _sync(self) -> None:
        with self._pending():
            self._queue.sync(timeout=0 if self._waits else None)

    def _take(self) -> None:
        with self._queue.consumer("c") as consumer, contextlib.suppress(shmq.Empty):
            consumer.take_many(self._random.randrange(1, 20), timeout=0)

    def _replicate(self) -> None:
        if not self._ends:
            there = source.Source(f"{self._root}/{SOURCE}", FOLLOWER)
            here = follower.Follower(f"{self._root}/{FOLLOWER}")
            there.begin(here.answer(there.hello()))
            self._ends = [there, here]
        there, here = self._ends
        for piece in there.pieces():
            here.take(piece)
        mark = here.flush()
        if mark is not None:
            there.acknowledged(mark)
            self._acknowledged = mark.index
            self._recorder.say(Doing("_replicate", self._acknowledged))
        there.tend()

    def _leave(self) -> None:
        while self._ends:
            self._ends.pop().close()


class Telling:
    """What may be true, moment by moment."""

    def __init__(self, history: History) -> None:
        """Before the first event."""
        self.state = State(history)

    def step(self) -> None:
        """One event more."""
        self.state.step()

    def truth(self) -> Doing:
        """What was said last."""
        return self.state.said[-1][1] if self.state.said else Doing("nothing", 0)


def _is_harmless(problem: Any) -> bool:
    """What a cut may leave of any queue: a name whose hold says nothing holds; of two watermarks one is used."""
    return problem.file.endswith(".hold") or problem.reason.startswith("a watermark slot")


def _common(some: list[tuple[int, bytes]], others: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """What of *some* is not before the first of the *others*: what was retired may still be there, or not any more."""
    first = others[0][0] if others else 0
    return [each for each in some if each[0] >= first]


def _all_of(path: str) -> list[tuple[int, bytes]]:
    with shmq.open(path, read_only=True) as queue:
        found = [each for each in queue.verify().problems if not _is_harmless(each)]
        check(not found, "verify finds something", path, found)
        return [(message.index, message.payload) for message in queue.reader()]


def _epoch(path: str) -> int:
    home = directory.Directory(path, read_only=True)
    try:
        return home.journal.epoch
    finally:
        home.close()


def judge(root: str, truth: Doing) -> None:
    """Be the first after the cut."""
    a, b = f"{root}/{SOURCE}", f"{root}/{FOLLOWER}"
    if not os.path.exists(f"{a}/queue.shmq"):
        check(not os.path.exists(f"{b}/queue.shmq"), "a follower without a source")
        return
    with another_boot():
        there = []
        if os.path.exists(f"{b}/queue.shmq"):
            epoch = _epoch(b)
            with shmq.open(b) as queue:
                end = queue.next_index
            check(end >= truth.acknowledged, "what was on the follower's disk is not there", end, truth.acknowledged)
            check(_epoch(b) == epoch, "the follower is of another epoch", epoch, _epoch(b))
            there = _all_of(b)
        else:
            check(truth.acknowledged == 0, "the follower is not there", truth.acknowledged)
        with shmq.open(a) as queue:
            here = _all_of(a)
            ours, theirs = _common(here, there), _common(there, here)
            check(ours[: len(theirs)] == theirs, "the follower has what its source has not", here[-3:], there[-3:])
            with contextlib.suppress(shmq.SyncPending):
                queue.put(b"behind the cut", timeout=0)
            with source.Source(a, FOLLOWER) as one, follower.Follower(b) as other:
                one.begin(other.answer(one.hello()))
                for piece in one.pieces():
                    other.take(piece)
            here, there = _all_of(a), _all_of(b)
            check(_common(there, here) == _common(here, there), "the follower has not all", here[-2:], there[-2:])
            check(len(there) > 0 and there[-1] == here[-1], "the follower has not the last", here[-1:], there[-1:])


def record(profile: Profile, root: str, seed: int, shim: Shim, broken: str = "") -> History:
    """What that profile does with that seed, below *root*; by a library with that fault, if one is given."""
    os.makedirs(root, exist_ok=True)
    recorder = Recorder(root, broken)
    with shim.listening(recorder.heard):
        work = Work(profile, root, recorder, seed)
        work.go()
    work.close()
    return recorder.history

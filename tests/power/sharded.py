"""
A root of shards that grows while it is put into, and a power cut.

All shards and the map lie in one folder, so a cut leaves of each any part, whatever it leaves of the others. The judge
opens the root, which carries on with a growth that was begun, takes all there is, and grows it once more.

What was on the disk is there, once; of each key, in the order in which it was put, over all growths: the parents are
drained before their children. What was put and is not on the disk may be gone, but of a shard only from its end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import random
import warnings
from typing import TYPE_CHECKING

import shmq
import shmq.shards

from .history import History, Recorder, State
from .judge import another_boot, check
from .workloads import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .shim import Shim

ROOT = "root"
KEYS = [b"%d" % each for each in range(9)]
MOST_SHARDS = 8


@dataclasses.dataclass(frozen=True)
class Profile:
    """What kind of root grows."""

    name: str
    durability: str
    steps: int = 40


PROFILES = (Profile("shards process", "process"), Profile("shards sync", "sync"))


@dataclasses.dataclass(frozen=True)
class Doing:
    """
    What is done from now on.

    Attributes:
        put: of each key, how many were put, or are being put.
        durable: of each key, how many of those were on the disk.
        made: whether the root was there.
    """

    doing: str
    put: dict[bytes, int]
    durable: dict[bytes, int]
    made: bool = True


NOTHING = Doing("nothing", {}, {}, made=False)


class Work:
    """One process that puts, takes, and lets the root grow in between."""

    def __init__(self, profile: Profile, root: str, recorder: Recorder, seed: int) -> None:
        self._profile = profile
        self._recorder = recorder
        self._random = random.Random(seed)
        self._put: dict[bytes, int] = {}
        self._durable: dict[bytes, int] = {}
        options = {"durability": profile.durability, "chunk_bytes": CHUNK_BYTES}
        self._shards = shmq.shards.open(f"{root}/{ROOT}", shards=2, options=shmq.Options(**options))

    def go(self) -> None:
        """Do all of it."""
        for _ in range(self._profile.steps):
            verb = self._random.choices(
                [self._put_one, self._put_many, self._sync, self._take, self._grow], [8, 4, 2, 3, 1]
            )[0]
            verb()
            if self._profile.durability == "sync":
                self._durable = dict(self._put)
        self._say("nothing")

    def close(self) -> None:
        """Let go of it."""
        self._shards.close()

    def _say(self, doing: str) -> None:
        self._recorder.say(Doing(doing, dict(self._put), dict(self._durable)))

    def _next(self) -> tuple[bytes, bytes]:
        key = self._random.choice(KEYS)
        number = self._put[key] = self._put.get(key, 0) + 1
        return key, b"%s %d " % (key, number) + bytes(self._random.randrange(200))

    def _put_one(self) -> None:
        key, payload = self._next()
        self._say("put")
        self._shards.put(payload, key=key)

    def _put_many(self) -> None:
        keys, payloads = zip(*(self._next() for _ in range(self._random.randrange(1, 30))), strict=True)
        self._say("put_many")
        self._shards.put_many(payloads, keys=keys)

    def _sync(self) -> None:
        self._say("sync")
        self._shards.sync()
        self._durable = dict(self._put)

    def _take(self) -> None:
        self._say("take")
        with self._shards.consumer("c") as consumer, contextlib.suppress(shmq.Empty):
            consumer.take_many(self._random.randrange(1, 20), timeout=0)

    def _grow(self) -> None:
        if self._shards.shards < MOST_SHARDS:
            self._say("grow")
            self._shards.grow()


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
        return self.state.said[-1][1] if self.state.said else NOTHING


def _all_of(shards: shmq.shards.Shards[bytes], name: str) -> Iterator[tuple[bytes, int]]:
    """Key and number of each message, as a new name is handed them."""
    with shards.consumer(name, start="earliest") as consumer, contextlib.suppress(shmq.Empty):
        while True:
            for payload in consumer.take_many(1000, timeout=0):
                key, number, _ = payload.split(b" ", 2)
                yield key, int(number)


def _of_keys(found: list[tuple[bytes, int]]) -> dict[bytes, list[int]]:
    return {
        key: [number for _, number in mine]
        for key, mine in itertools.groupby(sorted(found, key=lambda each: each[0]), key=lambda each: each[0])
    }


def judge(root: str, truth: Doing) -> None:
    """Be the first after the cut."""
    path = f"{root}/{ROOT}"
    with another_boot(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if not os.path.exists(f"{path}/shards.shmq"):
            check(not truth.made, "the root is not there")
            return
        with shmq.shards.open(path) as shards:
            before = _of_keys(list(_all_of(shards, "all")))
            for key in {*before, *truth.durable}:
                there = before.get(key, [])
                check(there == sorted(set(there)), "out of order, or doubled", key, there)
                check(there == list(range(1, len(there) + 1)), "one in the middle is gone", key, there)
                durable, put = truth.durable.get(key, 0), truth.put.get(key, 0)
                check(durable <= len(there) <= put, "not what was on the disk", key, len(there), durable, put)
            for key in KEYS:
                shards.put(b"%s %d " % (key, len(before.get(key, [])) + 1), key=key)
            if shards.shards < MOST_SHARDS:
                shards.grow()
            for key in KEYS:
                shards.put(b"%s %d " % (key, len(before.get(key, [])) + 2), key=key)
            after = _of_keys(list(_all_of(shards, "again")))
            for key in KEYS:
                wanted = list(range(1, len(before.get(key, [])) + 3))
                check(after.get(key) == wanted, "over one more growth", key, after.get(key), wanted)
            check(shards.map.growing_to is None, "still growing")


def record(profile: Profile, root: str, seed: int, shim: Shim, broken: str = "") -> History:
    """What that profile does with that seed, below *root*; by a library with that fault, if one is given."""
    os.makedirs(root, exist_ok=True)
    recorder = Recorder(root, broken)
    with shim.listening(recorder.heard):
        work = Work(profile, root, recorder, seed)
        recorder.say(Doing("nothing", {}, {}))
        work.go()
    work.close()
    return recorder.history

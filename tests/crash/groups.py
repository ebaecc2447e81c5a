"""
The verbs of a group, what is true of it before and after each, and what a fresh member must find after a death.

A group here is called "g"; its members, letters of their own, are what a walked process has of it. Which messages a
member *holds* matters to nobody once it is dead, so what is true of a group is only what is finished, and how.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shmq
from shmq import _native
from tests.support import fork

from .payloads import payload
from .recover import DEADLINE, brief, check, opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .operations import Model
    from .recover import Expected

NAME = "g"
WINDOW = 64
BOUND = 12
HOUR = 3600.0
OPTIONS: dict[str, Any] = {"ack": "explicit", "window": WINDOW}
UNWANTED, FILTER = 9, shmq.Filter(types={0})
"""The type of a message that those with this filter do not want."""


# ---------------------------------------------------------------- what is true
@dataclasses.dataclass
class Team:
    """What is finished, what went to the dead letters, and what waits for an hour that no walk lasts."""

    start: int = 0
    done: set[int] = dataclasses.field(default_factory=set)
    letters: set[int] = dataclasses.field(default_factory=set)
    later: set[int] = dataclasses.field(default_factory=set)
    oldest: set[int] = dataclasses.field(default_factory=set)
    """What the next put drops, which may be killed before it puts."""

    def fate(self, index: int) -> str:
        """What became of a message that is in the queue."""
        if index in self.letters:
            return "letter"
        return "done" if index in self.done or index < self.start else "later" if index in self.later else "comes"


class Truth:
    """What the verbs of groups change in a Model."""

    messages: dict[int, bytes]
    keys: dict[int, str]
    team: Team | None
    late: set[int]
    dull: set[int]

    def _known(self) -> Team:
        assert self.team is not None
        return self.team

    def _member(self, number: int, member: str, options: dict[str, Any] | None = None) -> None:
        if self.team is None:
            self.team = Team()

    def _finish(self, number: int, member: str, *indexes: int) -> None:
        self._known().done |= set(indexes)

    def _reject(self, number: int, member: str, index: int) -> None:
        self._known().letters.add(index)

    def _later(self, number: int, member: str, *indexes: int) -> None:
        self._known().later |= set(indexes)

    def _sweep(self, number: int, member: str, limit: int) -> None:
        team = self._known()
        team.done |= set([index for index in sorted(self.messages) if team.fate(index) == "comes"][:limit])

    def _drop_group(self, number: int) -> None:
        self.team = None

    def _put_later(self, number: int, length: int) -> None:
        self._put(number, length)  # type: ignore[attr-defined]
        self.late.add(max(self.messages))

    def _put_dull(self, number: int, length: int) -> None:
        self._put(number, length)  # type: ignore[attr-defined]
        self.dull.add(max(self.messages))

    def _purge_group(self, number: int) -> None:
        self._known().done |= set(self.messages)

    def _full(self, number: int) -> None:
        self._known().oldest = {max(self.messages) + 1 - BOUND}

    def _put_over(self, number: int, length: int) -> None:
        self._known().done |= self._known().oldest
        self._put(number, length)  # type: ignore[attr-defined]
        self._full(number)

    def _put_keyed(self, number: int, keys: str) -> None:
        self._put_many(number, *(4,) * len(keys))  # type: ignore[attr-defined]
        first = max(self.messages) + 1 - len(keys)
        self.keys |= {first + at: key for at, key in enumerate(keys) if key != "-"}

    def _put_keyed_later(self, number: int, key: str) -> None:
        self._put_keyed(number, key)
        self.late.add(max(self.messages))

    def _same(self, number: int, *rest: Any) -> None:
        """Who holds what matters only to the living."""

    _fetch = _extend = _back = _letters = _part = _die_holding = _pause = _lost = _same


# ---------------------------------------------------------------- doing it
@contextlib.contextmanager
def _small_table() -> Iterator[None]:
    """Groups that are made with one block in the side table, and few buckets: more take as much longer to be walked."""
    usual = _native.SIDE_BLOCKS, _native.RING_BUCKETS
    _native.SIDE_BLOCKS, _native.RING_BUCKETS = 1, 64
    try:
        yield
    finally:
        _native.SIDE_BLOCKS, _native.RING_BUCKETS = usual


class Hands:
    """The verbs of groups, through the public API. `held` has the messages that a member was handed, by index."""

    queue: Any
    path: str
    consumers: dict[str, Any]

    def __init__(self) -> None:
        self.held: dict[str, dict[int, Any]] = {}

    def _member(self, number: int, member: str, options: dict[str, Any] | None = None) -> None:
        given = {**OPTIONS, **(options or {})}
        if given.pop("filtered", False):
            given["filter"] = FILTER
        with _small_table():
            self.consumers[member] = self.queue.consumer(NAME, group=True, **given)
        self.held[member] = {}

    def _letters(self, number: int) -> None:
        """Its dead letters, small: what a stepper looks at after each instruction had better be."""
        small = shmq.Options(chunk_bytes=16384)
        with shmq.open(f"{self.path}.{NAME}.dead", options=small) as queue, _small_table():
            queue.consumer("operator", group=True, **OPTIONS).close()

    def _part(self, number: int, member: str) -> None:
        self.consumers.pop(member).close()

    def _drop_group(self, number: int) -> None:
        self.queue.drop_consumer(NAME)

    def _fetch(self, number: int, member: str, limit: int = 1) -> None:
        with contextlib.suppress(shmq.Empty):
            found = self.consumers[member].get_many(limit, timeout=0)
            self.held[member] |= {message.index: message for message in found}

    def _sweep(self, number: int, member: str, limit: int) -> None:
        with contextlib.suppress(shmq.Empty):
            self.consumers[member].take_many(limit, timeout=0)

    def _finish(self, number: int, member: str, *indexes: int) -> None:
        messages = [self.held[member].pop(index) for index in indexes]
        if len(messages) == 1:
            messages[0].ack()
        else:
            self.consumers[member].ack(*messages)

    def _lost(self, number: int, member: str, index: int) -> None:
        """It was given to somebody else: its ack must be refused."""
        try:
            self.held[member].pop(index).ack()
        except shmq.LeaseLost:
            return
        raise AssertionError(f"message {index} is somebody else's, and its ack was accepted")

    def _back(self, number: int, member: str, *indexes: int) -> None:
        for index in indexes:
            self.held[member].pop(index).nack()

    def _later(self, number: int, member: str, *indexes: int) -> None:
        for index in indexes:
            self.held[member].pop(index).nack(delay=HOUR)

    def _reject(self, number: int, member: str, index: int) -> None:
        self.held[member].pop(index).reject("no reason")

    def _extend(self, number: int, member: str, index: int) -> None:
        self.held[member][index].extend(HOUR)

    def _put_later(self, number: int, length: int) -> None:
        self.queue.put(self.payload(number, length), delay=HOUR)

    def _purge_group(self, number: int) -> None:
        self.queue.purge()

    def _full(self, number: int) -> None:
        """From here on, a put drops."""

    def _put_over(self, number: int, length: int) -> None:
        """Into a queue that is full, and drops the oldest."""
        self.queue.put(self.payload(number, length), timeout=0)

    def _put_dull(self, number: int, length: int) -> None:
        self.queue.put(self.payload(number, length), ttl=0.001)

    def _put_keyed(self, number: int, keys: str) -> None:
        """A batch with a letter each for its key; "-" has none."""
        self.queue.put_many(
            [payload(number, at, 4) for at in range(len(keys))],
            keys=[None if key == "-" else key.encode() for key in keys],
        )

    def _put_keyed_later(self, number: int, key: str) -> None:
        self.queue.put(payload(number, 0, 4), key=key.encode(), delay=HOUR)

    def payload(self, number: int, length: int) -> bytes:
        """See payloads.py."""
        raise NotImplementedError

    def _pause(self, number: int, seconds: float) -> None:
        time.sleep(seconds)

    def _die_holding(self, number: int, limit: int, beside: bool = False) -> None:
        """
        A process of its own joins the group, is handed so many messages, and is killed.

        *beside*: in a seat behind another's, so that nobody who comes after takes that very seat.
        """
        where = [str(Path(__file__).with_name("tracee.py")), json.dumps(sys.path), self.path, "16384", "-"]
        steps = [0, [["open"], *([["sit_before"]] if beside else []), ["member", "d"], ["hold_and_die", limit]], []]
        died = subprocess.run([sys.executable, *where], input=json.dumps(steps), text=True, check=False)
        if died.returncode != -signal.SIGKILL:
            raise AssertionError("the member that was to die did not")

    def _sit_before(self, number: int) -> None:
        """Take a seat; go on in a child, which takes another, and end when it has ended."""
        self.queue.stats()
        child = fork()
        if child:
            os.waitpid(child, 0)
            os.kill(os.getpid(), signal.SIGKILL)

    def _hold_and_die(self, number: int, limit: int) -> None:
        self._fetch(number, "d", limit)
        os.kill(os.getpid(), signal.SIGKILL)


# ---------------------------------------------------------------- what a fresh member finds
def _letters(path: str) -> list[int]:
    """The indexes that the dead letters of the group come from."""
    try:
        with opened(f"{path}.{NAME}.dead", create=False) as queue:
            return [message.headers["shmq.index"] for message in queue.reader()]
    except shmq.NotFound:
        return []


class _Shift:
    """Two fresh members that work off everything there is."""

    def __init__(self, first: Any, second: Any, keys: dict[int, str], *, lease: bool) -> None:
        self.members = (first, second)
        self.keys = keys
        self.newest: dict[str, int] = {}
        self.lease = lease
        self.acked: dict[int, bytes] = {}
        self.held: dict[int, Any] = {}

    def work(self, at_least: Iterable[int]) -> None:
        """Until there is nothing more, and all of *at_least* was there: each to one of the two, and finished once."""
        wanted, turn = set(at_least), 0
        deadline = time.monotonic() + DEADLINE
        idle = 0
        while idle < 2:
            turn += 1
            try:
                messages = self.members[turn % 2].get_many(5, timeout=0)
            except shmq.Empty:
                missing = wanted - set(self.acked) - set(self.held)
                if self.held and (self.keys or missing):  # what comes next of their keys, or behind the window, waits
                    self.finish()
                    continue
                idle = 0 if missing and time.monotonic() < deadline else idle + 1
                if missing:
                    time.sleep(0.01)
                continue
            idle = 0
            for message in messages:
                check(message.index not in self.acked, "a message that was finished comes again", message.index)
                check(self.lease or message.index not in self.held, "two hold a message", message.index)
                if message.index in self.keys:
                    self._in_order(message.index, self.keys[message.index])
                self.held[message.index] = message
            if self.lease:  # what is held for long would come again, by its right
                self.finish()
        self.finish()

    def _in_order(self, index: int, key: str) -> None:
        out = [other for other in self.held if other != index and self.keys.get(other) == key]
        check(self.lease or not out, "two of one key are out", index, out)
        newest = self.newest.get(key, -1)
        check(newest < index or (self.lease and newest == index), "a key goes back", index, newest)
        self.newest[key] = index

    def finish(self) -> None:
        """Acknowledge what is held: some one by one, the rest at once."""
        for index, message in list(self.held.items())[::2]:
            self._finish_one(index, message)
        for member in self.members:
            rest = [message for message in self.held.values() if _native.parts(message)[4] is member]
            if self.lease:
                for message in rest:
                    self._finish_one(message.index, message)
            elif rest:
                member.ack(*rest)
                self.acked |= {message.index: message.payload for message in rest}
        self.held.clear()

    def _finish_one(self, index: int, message: Any) -> None:
        try:
            message.ack()
        except shmq.LeaseLost:
            check(self.lease, "what nobody else has is lost", index)
            return
        self.acked[index] = message.payload
        self.held.pop(index, None)


def judge(path: str, expected: Expected, options: shmq.Options) -> None:
    """
    Two fresh members at *path*: every message that nobody finished comes to one of them, and no other.

    Raises:
        AssertionError, shmq.ShmqError: something that must be true is not.
    """
    lease = bool(expected.has("lease"))
    with opened(path, create=False) as queue:
        names = set(queue.consumers())
        check(names in [model.all_names() for model in expected.models], "a group is there half", names)
        models = [model for model in expected.models if (model.team is not None) == (NAME in names)]
        ack = queue.consumers()[NAME].ack if NAME in names else OPTIONS["ack"]
        first = queue.consumer(NAME, group=True, ack=ack, window=WINDOW)
        second = queue.consumer(NAME, group=True, ack=ack)
        with first, second:
            _work_off(queue, path, first, second, models, lease=lease)
    with (
        opened(path, create=False) as queue,
        queue.consumer(NAME, group=True, ack=ack) as member,
        contextlib.suppress(shmq.Empty),
    ):
        check(False, "what was finished comes again", member.get(timeout=0).index)


def _fates(model: Model, index: int) -> str:
    fate, key = _fate(model, index), model.keys.get(index)
    before = [each for each in model.keys if each < index and model.keys[each] == key]
    waits = fate == "comes" and any(_fate(model, each) == "later" for each in before)
    return "behind" if waits else fate


def _fate(model: Model, index: int) -> str:
    team = model.team or Team()
    if index not in model.messages:
        return "none"
    if index in model.dull:
        return "done"
    fate = team.fate(index)
    return "later" if fate == "comes" and index in model.late else fate


def _work_off(queue: Any, path: str, first: Any, second: Any, models: list[Model], *, lease: bool) -> None:
    messages = {message.index: message.payload for message in queue.reader()}
    models = [model for model in models if model.messages == messages]
    check(bool(models), "no run of operations leaves these messages", brief(messages))
    fates = {index: {_fates(model, index) for model in models} for index in messages}
    for index in set().union(*(model.team.oldest for model in models if model.team is not None)):
        fates[index] |= {"comes", "done"}
    shift = _Shift(first, second, models[0].keys, lease=lease)
    shift.work(index for index, may in fates.items() if may == {"comes"})
    letters = _letters(path)
    check(len(set(letters)) == len(letters), "a message is twice among the dead letters", letters)
    missing = []
    for index, may in fates.items():
        if index in shift.acked:
            check(shift.acked[index] == messages[index], "another payload is handed out", index)
            now = "comes"
        else:
            now = "letter" if index in letters else "away"
        allowed = {"away" if each in ("done", "later", "behind") else each for each in may}
        check(now in allowed, "that is no fate of it", index, now, may)
        if now == "away":
            missing.append(index)
    stats = queue.consumers()[NAME].group
    check((stats.pending, stats.returned) == (0, 0), "all is finished, and the ring says otherwise", stats)
    surely = sum(fates[index] == {"later"} for index in missing)
    perhaps = sum("later" in fates[index] for index in missing)
    check(surely <= stats.parked <= perhaps, "what waits for its time is lost, or more is", stats, surely, perhaps)
    heads = {min((each for each in fates if _fates(model, each) == "behind"), default=-1) for model in models}
    _check_head(first.head, queue.next_index, heads)
    index = queue.put(b"after")
    message = second.get(timeout=DEADLINE)
    check((message.index, message.payload) == (index, b"after"), "what was put afterwards does not come", message)
    message.ack()
    _check_head(first.head, index + 1, heads)


def _check_head(head: int, end: int, stands: set[int]) -> None:
    """It is at the end, or where the first one stands that waits for its key; -1 of those who say that none does."""
    check(head in {end if at < 0 else at for at in stands}, "the head stands", head, end, stands)

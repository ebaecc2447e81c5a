"""
Messages that are forwarded from one queue into others, and power cuts in between.

    a --(group "g")--> b, c, and back into a

All queues lie in one folder, so a cut leaves of each any part, whatever it leaves of the others. A message says by its
number what comes of it, so the judge knows what must be where: it is the first worker after the cut, forwards whatever
comes, and then counts. What was promised to be done does not come again; whatever else is in the source comes; and all
of it is in the targets once, however often it was tried. One thing alone may be there twice: what came of a message
that was itself forwarded into `a`, and went with the power, for it was not synced. It is put again, as another one.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import random
import time
import warnings
from typing import TYPE_CHECKING, Any
from unittest import mock

import shmq
from shmq.storage import dedup
from shmq.taking import forward, lasting
from shmq.taking.account import Account

from .history import History, Recorder, State
from .judge import another_boot, check, nobody_else
from .workloads import CHUNK_BYTES, GROUP, SIZES, small_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .shim import Shim

SOURCE, TARGETS = "a", "bc"
QUEUES = SOURCE + TARGETS
BOUND = 40
"""Of c: what finds no room there comes again, and may have been put into b."""
KEEP = "keep"
"""The name in b and c whose acknowledgements retire what is there."""
FRESH = 1_000_000
"""Numbers from here on are put by the judge."""
PATIENCE = 10.0


@dataclasses.dataclass(frozen=True)
class Profile:
    """What kinds of queues they are, and who works at them."""

    name: str
    durability: dict[str, str]
    lone: bool = False
    steps: int = 50


PROFILES = (
    Profile("forward sync", {"a": "sync", "b": "sync", "c": "process"}),
    Profile("forward process", {"a": "process", "b": "process", "c": "sync"}),
    Profile("forward alone", {"a": "process", "b": "process", "c": "process"}, lone=True),
)


@dataclasses.dataclass(frozen=True)
class Begins:
    """An operation is called; what it puts into the source."""

    verb: str
    puts: tuple[bytes, ...] = ()


@dataclasses.dataclass(frozen=True)
class Returned:
    """
    It has returned.

    Attributes:
        first: of each queue, the first index that is still there.
        puts: by payload, the index that it has in the source.
        placed: by queue and payload, the index of what was forwarded.
        finished: payloads in the source that are done now.
        kept: whether all that is done by now is promised to stay so after a power cut.
        durable: every index of that queue below this is promised to be on the disk.
    """

    first: dict[str, int]
    puts: dict[bytes, int] = dataclasses.field(default_factory=dict)
    placed: dict[tuple[str, bytes], int] = dataclasses.field(default_factory=dict)
    finished: frozenset[bytes] = frozenset()
    kept: bool = False
    durable: dict[str, int] = dataclasses.field(default_factory=dict)


# ---------------------------------------------------------------- what comes of a message
def payload(number: int) -> bytes:
    """The message with that number."""
    return b"in %d %s" % (number, random.Random(number).randbytes(SIZES[number % len(SIZES)]))


def outputs(data: bytes) -> list[tuple[str, bytes]]:
    """What comes of it: queues and payloads."""
    kind, number, rest = data.split(b" ", 2)
    one, two = b"one " + number + b" " + rest, b"two " + number + b" "
    if kind == b"back":
        return [("c", two)]
    return {
        0: [("b", one)],
        1: [("b", one), ("b", two)],
        2: [("b", one), ("c", two)],
        3: [],
        4: [("c", one), (SOURCE, b"back " + number + b" ")],
    }[int(number) % 5]


def all_of(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What comes of it, and of that."""
    for queue, output in outputs(data):
        yield queue, output
        if queue == SOURCE:
            yield from all_of(output)


# ---------------------------------------------------------------- the work
def _open(path: str, profile: Profile, name: str, *, create: bool = True) -> Any:
    durability = {"process": shmq.Durability.PROCESS, "sync": shmq.Durability.SYNC}[profile.durability[name]]
    options = shmq.Options(
        chunk_bytes=CHUNK_BYTES,
        durability=durability,
        retention=shmq.Retention.acked(),
        max_messages=BOUND if name == "c" else None,
    )
    return shmq.open(f"{path}/{name}", create=create, options=options, unsafe_filesystem=True)


def _member(queue: Any, profile: Profile) -> Any:
    return queue.consumer(GROUP, ack="explicit") if profile.lone else queue.consumer(GROUP, group=True, ack="explicit")


class Work:
    """One run of a profile."""

    def __init__(self, profile: Profile, root: str, recorder: Recorder, seed: int) -> None:
        self._profile, self._root, self._recorder = profile, root, recorder
        self._chance = random.Random(f"{profile.name} {seed}")
        self._queues: dict[str, Any] = {}
        self._keepers: dict[str, Any] = {}
        self._member: Any = None
        self._held: list[Any] = []
        self._made = 0
        self._placed: dict[tuple[str, bytes], int] = {}

    def go(self) -> None:
        """Do all of it, and leave without closing anything in order."""
        self._do("create", self._create)
        weights = {"put": 6, "get": 6, "forward": 12, "take": 4, "sync": 2, "leave": 1, "nack": 1}
        for _ in range(self._profile.steps):
            getattr(self, "_" + self._chance.choices(list(weights), list(weights.values()))[0])()

    def close(self) -> None:
        """For the process's sake; nobody records it."""
        for each in [self._member, *self._keepers.values(), *self._queues.values()]:
            if each is not None:
                each.close()

    def _do(self, verb: str, call: Callable[[], dict[str, Any] | None], puts: tuple[bytes, ...] = ()) -> None:
        self._recorder.say(Begins(verb, puts))
        answer = call() or {}
        first = {name: queue.first_index for name, queue in self._queues.items()}
        self._recorder.say(Returned(first, **answer))

    def _create(self) -> None:
        for name in QUEUES:
            self._queues[name] = _open(self._root, self._profile, name)
        for name in TARGETS:
            self._keepers[name] = self._queues[name].consumer(KEEP)
        _member(self._queues[SOURCE], self._profile).close()

    def _put(self) -> None:
        count = self._chance.randint(1, 8)
        data = tuple(payload(number) for number in range(self._made, self._made + count))
        self._made += count
        source = self._queues[SOURCE]

        def put() -> dict[str, Any]:
            indexes = source.put_many(data) if count > 1 else [source.put(data[0])]
            durable = {SOURCE: indexes[-1] + 1} if self._profile.durability[SOURCE] == "sync" else {}
            return {"puts": dict(zip(data, indexes, strict=True)), "durable": durable}

        self._do("put", put, data)

    def _get(self) -> None:
        def get() -> None:
            if self._member is None:
                self._member = _member(self._queues[SOURCE], self._profile)
            with contextlib.suppress(shmq.Empty):
                self._held += self._member.get_many(self._chance.randint(1, 8), timeout=0)

        self._do("get", get)

    def _forward(self) -> None:
        if not self._held:
            self._get()
        self._chance.shuffle(self._held)
        some = [self._held.pop() for _ in range(min(len(self._held), self._chance.choice((1, 1, 2, 4))))]
        if some:
            self._do("forward", lambda: self._forward_these(some))

    def _forward_these(self, some: list[Any]) -> dict[str, Any]:
        wanted = [(message, *output) for message in some for output in outputs(message.payload)]
        room = BOUND - self._keepers["c"].lag
        fits = sum(queue == "c" for _, queue, _ in wanted) <= room
        deadline = PATIENCE if fits else 0.0
        begun = some[0].forward(timeout=deadline) if len(some) == 1 else shmq.forward(*some, timeout=deadline)
        finished: frozenset[bytes] = frozenset()
        with contextlib.suppress(shmq.Full), begun as f:
            for message, queue, data in wanted:
                f.put(self._queues[queue], data, message=message)
            finished = frozenset(message.payload for message in some)
        if any(index is None for index in f.indexes) or len(f.indexes) < len(wanted):  # there was no room
            finished = frozenset()
        placed = {
            (queue, data): index
            for (_, queue, data), index in zip(wanted, f.indexes, strict=False)
            if index is not None
        }
        for where, index in placed.items():
            check(self._placed.setdefault(where, index) == index, "forwarded to two places", where, index)
        sync = self._profile.durability[SOURCE] == "sync"
        durable: dict[str, int] = {}
        for (queue, _), index in placed.items():
            if finished and (sync or self._profile.durability[queue] == "sync"):
                durable[queue] = max(durable.get(queue, 0), index + 1)
        return {"placed": placed, "finished": finished, "kept": bool(finished) and sync, "durable": durable}

    def _take(self) -> None:
        name = self._chance.choice(TARGETS)

        def take() -> None:
            with contextlib.suppress(shmq.Empty):
                self._keepers[name].take_many(self._chance.choice((5, 50)), timeout=0)

        self._do("take", take)

    def _sync(self) -> None:
        source = self._queues[SOURCE]

        def sync() -> dict[str, Any]:
            source.sync()
            return {"kept": True, "durable": {SOURCE: source.next_index}}

        self._do("sync", sync)

    def _nack(self) -> None:
        if self._held:
            self._do("nack", self._held.pop().nack)

    def _leave(self) -> None:
        def leave() -> None:
            if self._member is not None:
                self._member.close()
            self._member, self._held = None, []

        self._do("leave", leave)


# ---------------------------------------------------------------- what may be found
@dataclasses.dataclass
class Truth:
    """
    What may be found after a cut.

    Attributes:
        indexes: by payload, where what was put into the source is, or may be; all that may be there is named.
        placed: the same of what was forwarded.
        first: what lies below was retired.
        retired: what lies below this may be.
        kept: payloads that are done and do not come again.
        durable: what lies below, and was not retired, is there.
        exists: whether the queues were promised to be there.
    """

    indexes: dict[bytes, int] = dataclasses.field(default_factory=dict)
    maybe: set[bytes] = dataclasses.field(default_factory=set)
    placed: dict[tuple[str, bytes], int] = dataclasses.field(default_factory=dict)
    first: dict[str, int] = dataclasses.field(default_factory=dict)
    retired: dict[str, int] = dataclasses.field(default_factory=dict)
    kept: frozenset[bytes] = frozenset()
    durable: dict[str, int] = dataclasses.field(default_factory=dict)
    exists: bool = False
    doing: str = "nothing"


class Telling:
    """Reads a history from its beginning, and says at each moment what may be true."""

    def __init__(self, history: History) -> None:
        self.state = State(history)
        self._now = Truth()
        self._finished: frozenset[bytes] = frozenset()
        said = [event.what for event in history.events if hasattr(event, "what")]
        self._answers = iter([each for each in said if isinstance(each, Returned)])
        self._coming: Returned | None = None

    def step(self) -> None:
        """One event more."""
        what = getattr(self.state.step(), "what", None)
        if isinstance(what, Begins):
            self._coming = next(self._answers, None)
            self._now.maybe |= set(what.puts)
            self._now.doing = what.verb
        elif isinstance(what, Returned):
            self._coming = None
            now = self._now
            now.indexes.update(what.puts)
            now.placed.update(what.placed)
            now.first.update(what.first)
            for name, index in what.durable.items():
                now.durable[name] = max(now.durable.get(name, 0), index)
            self._finished |= what.finished
            if what.kept:
                now.kept = self._finished
            now.exists |= now.doing == "create"
            now.doing = "nothing"

    def truth(self) -> Truth:
        """What may be found after a cut here."""
        now = dataclasses.replace(self._now, indexes=dict(self._now.indexes), placed=dict(self._now.placed))
        now.retired = dict(now.first)
        if self._coming is not None:
            now.indexes.update(self._coming.puts)
            now.placed.update(self._coming.placed)
            now.retired.update(self._coming.first)
        return now


# ---------------------------------------------------------------- looking
def judge(root: str, truth: Truth, profile: Profile, *, alone: bool = True) -> None:
    """
    Be the first worker after the cut.

    Raises:
        Found, shmq.ShmqError, OSError: something that must be true is not.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)  # a checkpoint that is moved back is said, as promised
        stack.enter_context(another_boot())
        stack.enter_context(mock.patch.object(forward, "_AGAIN_NS", 0))
        if alone:
            stack.enter_context(nobody_else())
        queues = {}
        for name in QUEUES:
            there = os.path.exists(f"{root}/{name}/queue.shmq")
            check(there or not truth.exists, "a queue is gone", name)
            queues[name] = stack.enter_context(_open(root, profile, name))
        before = {name: _look(name, queue, truth) for name, queue in queues.items()}
        _check_kept(before, truth)
        queues["c"].configure(max_messages=None)
        fresh = [payload(FRESH + number) for number in range(5)]
        for data in fresh:
            queues[SOURCE].put(data)
        _drain(queues, truth, profile)
        must = [*fresh, *before[SOURCE].values(), *_surely(truth)]
        excused = set() if queues[SOURCE].options.durability.kind == "sync" else _remade(before[SOURCE], truth)
        _count(queues, truth, must, excused)


def _remade(before: dict[int, bytes], truth: Truth) -> set[tuple[str, bytes]]:
    """What comes of messages that were forwarded into the source and are lost."""
    lost = [
        data
        for (name, data), index in truth.placed.items()
        if name == SOURCE and index >= truth.durable.get(SOURCE, 0) and before.get(index) != data
    ]
    return {where for data in lost for where in all_of(data)}


def _look(name: str, queue: Any, truth: Truth) -> dict[int, bytes]:
    seen = {message.index: message.payload for message in queue.reader()}
    check(list(seen) == sorted(seen), "indexes do not ascend", name, list(seen))
    known = {data for put in truth.maybe for where, data in all_of(put) if where == name}
    strange = set(seen.values()) - known - (truth.maybe if name == SOURCE else set())
    check(not strange, "never put, or damaged", name, strange)
    placed = {index: data for (where, data), index in truth.placed.items() if where == name}
    if name == SOURCE:
        placed.update((index, data) for data, index in truth.indexes.items())
    lost = [
        index
        for index, data in placed.items()
        if truth.retired.get(name, 0) <= index < truth.durable.get(name, 0) and seen.get(index) != data
    ]
    check(not lost, "promised to be on the disk, and gone", name, lost, truth.retired, list(seen)[:3])
    for put in truth.maybe:
        there = [data in seen.values() for where, data in outputs(put) if where == name]
        places = [truth.placed.get((where, data), 1 << 62) for where, data in outputs(put) if where == name]
        check(len(set(there)) < 2 or min(places) < truth.retired.get(name, 0), "a part of what comes", name, put)
    return seen


def _check_kept(before: dict[str, dict[int, bytes]], truth: Truth) -> None:
    """What is done, and stays so, has left everything in the other queues."""
    for put in truth.kept:
        for name, data in outputs(put):
            index = truth.placed[name, data]
            there = before[name].get(index) == data
            check(there or index < truth.retired[name], "it is done, and what came of it is gone", put, name, index)


def _surely(truth: Truth) -> list[bytes]:
    """What was put and must have come through: it was on the disk, or was retired since it was done."""
    surely = max(truth.durable.get(SOURCE, 0), truth.first.get(SOURCE, 0))
    return [data for data, index in truth.indexes.items() if index < surely]


def _drain(queues: dict[str, Any], truth: Truth, profile: Profile) -> None:
    """Forward all that comes."""
    until = time.monotonic() + PATIENCE
    with _member(queues[SOURCE], profile) as member:
        while True:
            try:
                messages = member.get_many(20, timeout=0)
            except shmq.Empty:
                if not member.lag:
                    return
                check(time.monotonic() < until, "something never comes", member.lag)
                time.sleep(0.01)
                continue
            again = [message.payload for message in messages if message.payload in truth.kept]
            check(not again, "what was done, as promised, comes again", again)
            with shmq.forward(*messages) as f:
                for message in messages:
                    for name, data in outputs(message.payload):
                        f.put(queues[name], data, message=message)


def _count(queues: dict[str, Any], truth: Truth, must: list[bytes], excused: set[tuple[str, bytes]]) -> None:
    """Each thing once, where it must be; nothing twice."""
    there: dict[tuple[str, bytes], list[int]] = collections.defaultdict(list)
    for name in TARGETS:
        for message in queues[name].reader():
            there[name, message.payload].append(message.index)
    for where, indexes in there.items():
        if where in excused:
            continue
        check(len(indexes) == 1, "forwarded twice", where, indexes)
        before = truth.placed.get(where)
        gone = before is not None and before < truth.first.get(where[0], 0)
        check(not gone or indexes == [before], "what was retired is forwarded again", where, before, indexes)
    for put in must:
        for where in all_of(put):
            index = truth.placed.get(where)
            retired = index is not None and index < truth.retired.get(where[0], 0)
            check(where[0] == SOURCE or where in there or retired, "nothing came of it", put, where)


# ---------------------------------------------------------------- recording
@contextlib.contextmanager
def fault(name: str) -> Iterator[None]:
    """A library that is broken like that."""
    begin, real = Account.begin_forward, dedup.Memory.enter

    def forgets(memory: dedup.Memory, who: bytes, batch: Any) -> None:
        real(memory, who, batch)
        memory.forwarded.clear()

    with contextlib.ExitStack() as stack:
        if name == "no look":
            stack.enter_context(mock.patch.object(Account, "begin_forward", lambda *given: begin(*given) and False))
        elif name == "no copies sync":
            stack.enter_context(mock.patch.object(lasting.Lasting, "_have_one_on_disk", return_value=True))
        elif name == "no note":
            stack.enter_context(mock.patch.object(dedup.Memory, "enter", forgets))
        yield


FAULTS = ("no look", "no copies sync", "no note")


def record(profile: Profile, root: str, seed: int, shim: Shim, broken: str = "") -> History:
    """What that profile does with that seed, below *root*; by a library with that fault, if one is given."""
    os.makedirs(root, exist_ok=True)
    small_groups()
    recorder = Recorder(root, broken)
    work = Work(profile, root, recorder, seed)
    with (
        mock.patch.object(lasting, "EVERY", 3600.0),  # no clock strikes: `sync` does it, and whoever leaves
        mock.patch.object(forward, "_AGAIN_NS", 0),
        shim.listening(recorder.heard),
        fault(broken),
    ):
        work.go()
    work.close()
    return recorder.history

"""
What is done before the lights go out: a user's work at one queue, in random order, told to a `Recorder`.

Each operation is said before it begins, with what it will put, and when it has returned, with what it answered and what
the queue says of itself then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import time
from typing import TYPE_CHECKING, Any

import shmq
from shmq import _native
from shmq.storage import space
from shmq.storage.chain import Chain
from shmq.taking import group_options
from tests.grains import grained

from .history import History, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .shim import Shim

CHUNK_BYTES = 16384
SIZES = (0, 1, 7, 8, 40, 63, 64, 65, 200, 700, 1500, 4000)


@dataclasses.dataclass(frozen=True)
class Begins:
    """An operation is called: its verb, and the payloads it would add, all of them or none."""

    verb: str
    payloads: tuple[bytes, ...] = ()
    sequence: int | None = None
    """Of a put with dedup."""
    token: str = ""
    """Of the set that is adopted, if it was handed over."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the queue says of itself."""

    first: int
    next: int
    heads: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Returned:
    """
    The operation has returned.

    Attributes:
        index: of the first message it added; -1 when it added none.
        facts: what the queue says now.
        durable: every index below this is on the disk, as the library has promised; -1 when it promised nothing new.
        acknowledged: likewise the acknowledgements of these names up to there.
        finished: indexes that the group has acknowledged with this.
        moved: indexes that the group has moved to its dead letters with this.
        kept: that everything the group has acknowledged so far is on the disk, as the library has promised.
        handed: the token and the payloads of a set that was handed over.
        there: after a recovery: exactly these messages are in the queue from now on, and on the disk.
    """

    index: int
    facts: Facts
    durable: int = -1
    acknowledged: dict[str, int] = dataclasses.field(default_factory=dict)
    there: frozenset[int] | None = None
    finished: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    kept: bool = False
    handed: tuple[str, tuple[bytes, ...]] | None = None


@dataclasses.dataclass(frozen=True)
class Profile:
    """What kind of queue it is, and who works at it."""

    name: str
    durability: str
    retention: str
    verbs: dict[str, int]
    steps: int = 40
    grained: bool = False
    bound: int | None = None
    """Of `max_messages`; the oldest are dropped."""


AGE = 1000.0
FILTERED = "a"
"""A name that wants some messages alone."""
ONCE = "once"
"""The producer of what is put with dedup."""
_PUTS = {"put": 30, "put_many": 12, "reserve": 6, "abort": 2}
_GETS = {"auto": 8, "explicit": 8}
PROFILES = (
    Profile("sync", "sync", "forever", {**_PUTS, **_GETS, "reopen": 2}),
    Profile("sync acked", "sync", "acked", {**_PUTS, "auto": 20, "explicit": 20, "large": 3}, 60),
    Profile("sync grained", "sync", "acked", {**_PUTS, "auto": 20, "explicit": 20, "large": 3}, 120, grained=True),
    Profile("sync adopt", "sync", "forever", {**_PUTS, "adopt": 8, "auto": 4}, 25),
    Profile("sync pending", "sync", "forever", {**_PUTS, "overtake": 10, "sync": 3}),
    Profile("interval", "interval", "forever", {**_PUTS, **_GETS, "sync": 3, "keep": 12, "reopen": 2}),
    Profile("process", "process", "forever", {**_PUTS, **_GETS, "sync": 4, "large": 1}),
    Profile("process bytes", "process", "bytes", {**_PUTS, **_GETS, "sync": 2, "reopen": 2, "large": 2}, 60),
    Profile("process acked", "process", "acked", {**_PUTS, "auto": 20, "explicit": 20, "sync": 2, "large": 3}, 60),
    Profile("process grained", "process", "acked", {**_PUTS, "auto": 30, "sync": 2, "large": 3}, 120, grained=True),
    Profile("process adopt", "process", "forever", {**_PUTS, "adopt": 8, "auto": 4, "drop": 2}, 25),
    Profile("sync group", "sync", "forever", {**_PUTS, "work": 30, "other": 8, "leave": 3, "reopen": 1}, 60),
    Profile("sync group acked", "sync", "acked", {**_PUTS, "work": 45, "large": 3, "leave": 2, "explicit": 12}, 60),
    Profile(
        "process group", "process", "acked", {**_PUTS, "work": 40, "other": 6, "leave": 3, "sync": 6, "large": 2}, 60
    ),
    Profile("sync once", "sync", "acked", {**_PUTS, "dedup": 25, "auto": 20, "explicit": 10, "reopen": 2}, 60),
    Profile("process once", "process", "acked", {**_PUTS, "dedup": 25, "auto": 15, "sync": 3, "adopt": 3}, 60),
    Profile("sync drop", "sync", "acked", {**_PUTS, "dedup": 8, "auto": 6, "reopen": 2}, 60, bound=15),
    Profile("process age", "process", "age", {**_PUTS, "dedup": 8, "auto": 6, "later": 4, "sync": 3}, 60),
    Profile("sync hand over", "sync", "forever", {**_PUTS, "hand_over": 8, "adopt_handed": 6, "auto": 4}, 30),
    Profile("process hand over", "process", "acked", {**_PUTS, "hand_over": 8, "adopt_handed": 6, "auto": 8}, 30),
    Profile("names", "process", "forever", {"put": 8, **_GETS, "name": 6, "drop": 6, "sync": 6}),
)


def keep(queue: Any) -> bool:
    """
    What the thread of `interval` does where the core can do it alone, also behind a producer who rolled.

    Returns:
        Whether it did, so that everything that was put is on the disk.
    """
    home, joined = queue._session.home, queue._session.joined()
    chain = Chain(home, joined.member)
    names = [name for name in chain.names() if name[0] >= joined.control.durable_chunk()]
    if not 1 <= len(names) <= 2:
        return False
    chunks = [chain.open(*name, writable=True, syncing=True) for name in names]
    shared = _native.new_keeper(home.chunks)
    _native.rolled(shared, chunks[-1])
    joined.member.sync_keep(chunks[0], 1000, _native.monotonic_ns() + 10**12, shared)
    return bool(joined.control.durable() == queue.next_index)


GROUP, WINDOW = "g", 64


def dead_letters(path: str) -> str:
    """Where the group of the queue at *path* moves what it rejects."""
    return f"{path}.{GROUP}.dead"


def small_groups() -> None:
    """Rings of this process are made small: each cut lays them out and each step compares them."""
    group_options.WINDOW = WINDOW
    _native.SIDE_BLOCKS = 1


def options(profile: Profile) -> shmq.Options:
    """What the profile's queue is made with."""
    durability = {
        "process": shmq.Durability.PROCESS,
        "interval": shmq.Durability.interval(3600.0),  # nothing here depends on when a clock strikes
        "sync": shmq.Durability.SYNC,
    }[profile.durability]
    retention = {
        "forever": shmq.Retention.forever(),
        "acked": shmq.Retention.acked(),
        "bytes": shmq.Retention.bytes(2 * CHUNK_BYTES),
        "age": shmq.Retention.age(AGE),
    }[profile.retention]
    full = "drop_oldest" if profile.bound else "block"
    return shmq.Options(
        chunk_bytes=CHUNK_BYTES, retention=retention, durability=durability, max_messages=profile.bound, full=full
    )


class Clock:
    """The clock on the wall, for whoever retires by age: it can be put forward; the judge goes by the real one."""

    def __init__(self) -> None:
        self._ahead_ns = 0
        self.sleep = time.sleep

    def time_ns(self) -> int:
        """As that of time."""
        return time.time_ns() + self._ahead_ns

    def put_forward(self, seconds: float) -> None:
        """So far."""
        self._ahead_ns += int(seconds * 1e9)

    @contextlib.contextmanager
    def hung_up(self) -> Iterator[None]:
        """In the place of the real one."""
        space.time = self  # type: ignore[attr-defined]
        try:
            yield
        finally:
            space.time = time  # type: ignore[attr-defined]


class Work:
    """One run of a profile."""

    def __init__(self, profile: Profile, root: str, recorder: Recorder, seed: int) -> None:
        self.path = f"{root}/q"
        self._profile = profile
        self._recorder = recorder
        self._chance = random.Random(f"{profile.name} {seed}")
        self._made = 0
        self._batch = 0
        self._names: dict[str, Any] = {}
        self._unfinished: dict[str, list[Any]] = {}
        self._queue: Any = None
        self._members: dict[str, Any] = {}
        self._held: dict[str, list[Any]] = {}
        self._sequence = 0
        self._once: tuple[int, bytes, int] | None = None
        self._handed: list[tuple[str, tuple[bytes, ...]]] = []
        self.clock = Clock()

    def go(self) -> None:
        """Do all of it, and leave without closing anything in order."""
        self._do("create", self._create)
        verbs, weights = zip(*self._profile.verbs.items(), strict=True)
        for _ in range(self._profile.steps):
            getattr(self, "_" + self._chance.choices(verbs, weights)[0])()

    def close(self) -> None:
        """For the process's sake; nobody records it."""
        for each in [*self._names.values(), *self._members.values()]:
            each.close()
        if self._queue is not None:
            self._queue.close()

    # ---- telling
    def _do(
        self,
        verb: str,
        call: Callable[[], Any],
        payloads: tuple[bytes, ...] = (),
        *,
        sequence: int | None = None,
        token: str = "",
        **group: frozenset[int],
    ) -> Any:
        self._recorder.say(Begins(verb, payloads, sequence, token))
        answer = call()
        index = answer.start if isinstance(answer, range) else answer if isinstance(answer, int) else -1
        synced = payloads and (self._profile.durability == "sync" or verb == "adopt")
        durable = index + len(payloads) if synced and index >= 0 else -1
        acknowledged: dict[str, int] = {}
        facts = self._facts()
        if verb == "sync":
            durable, acknowledged = facts.next, {**facts.heads, **dict.fromkeys([GROUP] * bool(self._members), 0)}
        if verb == "keep":
            durable = facts.next
        if verb == "overtake":
            durable = -1
        if verb == "ack" and not group and self._profile.durability == "sync":  # an ack that returned is on the disk
            acknowledged = {"explicit": facts.heads["explicit"]}
        kept = verb == "sync" or (bool(group) and self._profile.durability == "sync")
        if group and kept:
            acknowledged = {GROUP: 0}  # the name, at least
        handed = answer if verb == "hand over" else None
        index = index if payloads else -1
        self._recorder.say(Returned(index, facts, durable, acknowledged, kept=kept, handed=handed, **group))
        return answer

    def _facts(self) -> Facts:
        queue = self._queue
        heads = {name: it.head for name, it in self._names.items()}
        if self._members:
            heads[GROUP] = queue.next_index  # which messages it has finished is told by itself
        return Facts(queue.first_index, queue.next_index, heads)

    def _payload(self) -> bytes:
        self._made += 1
        size = self._chance.choice(SIZES)
        return f"{self._made}.".encode() + self._chance.randbytes(size)

    # ---- putting
    def _create(self) -> None:
        if "work" in self._profile.verbs:  # made by hand, it is smaller: each cut lays it out
            small = options(self._profile).__replace__(retention=shmq.Retention.acked())
            shmq.open(dead_letters(self.path), options=small, unsafe_filesystem=True).close()
        self._queue = shmq.open(self.path, options=options(self._profile), unsafe_filesystem=True)

    def _put(self) -> None:
        data = self._payload()
        key = b"key" if self._chance.random() < 0.3 else None
        headers = {"n": self._made} if self._chance.random() < 0.2 else None
        self._do("put", lambda: self._queue.put(data, key=key, headers=headers), (data,))

    def _large(self) -> None:
        data = self._payload() + bytes(20_000)
        self._do("put", lambda: self._queue.put(data), (data,))

    def _put_many(self) -> None:
        batch = tuple(self._payload() for _ in range(self._chance.randint(2, 6)))
        self._do("put_many", lambda: self._queue.put_many(batch), batch)

    def _reserve(self) -> None:
        data = self._payload()

        def fill() -> int:
            with self._queue.reserve(len(data) + self._chance.choice((0, 8, 100))) as slot:
                self._recorder.look()  # the claim is open
                slot.buffer[: len(data)] = data
                self._recorder.look()
                return int(slot.commit(len(data)))

        self._do("reserve", fill, (data,))

    def _abort(self) -> None:
        def give_up() -> None:
            slot = self._queue.reserve(40)
            self._recorder.look()
            slot.abort()

        self._do("abort", give_up)

    def _overtake(self) -> None:
        """A SYNC put behind a claim that stays open: it is in the queue, and its durability unknown."""
        data, late = self._payload(), self._payload()
        slot: list[Any] = []

        def ahead() -> int:
            slot.append(self._queue.reserve(len(late)))
            try:
                return int(self._queue.put(data, timeout=0.0))
            except shmq.SyncPending as pending:
                return int(pending.index)

        self._do("overtake", ahead, (data,))

        def commit() -> int:
            slot[0].buffer[:] = late
            return int(slot[0].commit())

        self._do("reserve", commit, (late,))

    def _sync(self) -> None:
        self._do("sync", self._queue.sync)

    def _keep(self) -> None:
        def kept() -> None:
            if not keep(self._queue):
                self._queue.sync()

        self._do("keep", kept)

    def _reopen(self) -> None:
        def again() -> None:
            for each in [*self._names.values(), *self._members.values()]:
                each.close()
            self._names.clear()
            self._unfinished.clear()
            self._members.clear()
            self._held.clear()
            self._queue.close()
            self._queue = shmq.open(self.path, create=False, unsafe_filesystem=True)

        self._do("reopen", again)

    def _adopt(self) -> None:
        batch = tuple(self._payload() for _ in range(self._chance.randint(1, 20)))
        self._batch += 1

        def adopt() -> range:
            with self._queue.stage() as staged:
                for data in batch:
                    staged.put(data)
                return self._queue.adopt(staged, dedup=("producer", self._batch))

        self._do("adopt", adopt, batch)

    def _once_put(self, sequence: int, data: bytes) -> int:
        return int(self._queue.put(data, dedup=(ONCE, sequence)))

    def _once_more(self) -> None:
        """The last put with dedup is repeated: nothing is put."""
        sequence, data, first = self._once or (0, b"", 0)
        index = self._do("put again", lambda: self._once_put(sequence, data))
        assert index == first

    def _put_once(self) -> None:
        data = self._payload()
        self._sequence += 1
        sequence = self._sequence
        index = self._do("put", lambda: self._once_put(sequence, data), (data,), sequence=sequence)
        self._once = sequence, data, index

    def _dedup(self) -> None:
        if self._once and self._chance.random() < 0.3:
            self._once_more()
        else:
            self._put_once()

    def _hand_over(self) -> None:
        batch = tuple(self._payload() for _ in range(self._chance.randint(1, 20)))

        def hand() -> tuple[str, tuple[bytes, ...]]:
            with self._queue.stage() as staged:
                for data in batch:
                    staged.put(data)
                return staged.hand_over(), batch

        self._handed.append(self._do("hand over", hand))

    def _adopt_handed(self) -> None:
        if not self._handed:
            return
        token, batch = self._handed.pop(self._chance.randrange(len(self._handed)))
        self._batch += 1
        dedup = ("producer", self._batch)
        self._do("adopt", lambda: self._queue.adopt(token, dedup=dedup), batch, token=token)

    def _later(self) -> None:
        """Whatever is there now is as old as it may be."""
        self.clock.put_forward(AGE)

    # ---- getting
    def _consumer(self, name: str, ack: str) -> Any:
        if name not in self._names:

            def opened() -> None:
                filtered = {"filter": shmq.Filter(types={0})} if name == FILTERED else {}
                self._names[name] = self._queue.consumer(name, ack=ack, **filtered)

            self._do("consumer", opened)
        return self._names[name]

    def _auto(self) -> None:
        consumer = self._consumer("auto", "auto")
        count = self._chance.randint(1, 20)
        self._do("take", lambda: self._take(consumer, count))

    def _take(self, consumer: Any, count: int) -> None:
        with contextlib.suppress(shmq.Empty, shmq.Gone):
            consumer.take_many(count, timeout=0)

    def _explicit(self) -> None:
        consumer = self._consumer("explicit", "explicit")
        held = self._unfinished.setdefault("explicit", [])

        def get() -> None:
            with contextlib.suppress(shmq.Empty, shmq.Gone):
                held.extend(consumer.get_many(self._chance.randint(1, 20), timeout=0))
            held.sort(key=lambda message: message.index)  # what it acknowledged is before its head then

        def finish(count: int) -> None:
            for _ in range(count):
                with contextlib.suppress(shmq.LeaseLost):  # retention took it
                    held.pop(0).ack()

        self._do("get", get)  # it may pass padding, which is on the disk with the next acknowledgement
        count = self._chance.choice((0, len(held) // 2, len(held), len(held)))
        if count:
            self._do("ack", lambda: finish(count))

    # ---- a group
    def _member(self, which: str) -> Any:
        if which not in self._members:

            def joined() -> None:
                self._members[which] = self._queue.consumer(GROUP, group=True, ack="explicit")
                self._held[which] = []

            self._do("join", joined)
        return self._members[which]

    def _work(self, which: str = "one") -> None:
        """Get some, and settle some of what is held: most of it in order to be finished."""
        member, held = self._member(which), self._held.get(which, [])

        def get() -> None:
            with contextlib.suppress(shmq.Empty, shmq.Gone):
                held.extend(member.get_many(self._chance.randint(1, 8), timeout=0))

        self._do("get", get)
        held = self._held[which]
        self._chance.shuffle(held)
        for _ in range(self._chance.choice((0, len(held) // 2, len(held), len(held)))):
            how = self._chance.choices(("ack", "many", "nack", "later", "reject"), (10, 4, 3, 2, 3))[0]
            if held:
                getattr(self, f"_settle_{how}")(member, held)

    def _settle_ack(self, member: Any, held: list[Any]) -> None:
        message = held.pop()
        self._do("ack", message.ack, finished=frozenset([message.index]))

    def _settle_many(self, member: Any, held: list[Any]) -> None:
        some = [held.pop() for _ in range(min(len(held), self._chance.randint(2, 5)))]
        self._do("ack", lambda: member.ack(*some), finished=frozenset(each.index for each in some))

    def _settle_nack(self, member: Any, held: list[Any]) -> None:
        self._do("nack", held.pop().nack)

    def _settle_later(self, member: Any, held: list[Any]) -> None:
        message = held.pop()
        self._do("nack", lambda: message.nack(delay=3600))

    def _settle_reject(self, member: Any, held: list[Any]) -> None:
        message = held.pop()
        self._do("reject", lambda: message.reject("no good"), moved=frozenset([message.index]))

    def _other(self) -> None:
        self._work("two")

    def _leave(self) -> None:
        if not self._members:
            return
        which = self._chance.choice(sorted(self._members))

        def leave() -> None:
            self._members.pop(which).close()
            del self._held[which]

        self._do("leave", leave)

    def _name(self) -> None:
        self._consumer(self._chance.choice("abc"), "auto")

    def _drop(self) -> None:
        if not self._names:
            return
        name = self._chance.choice(sorted(self._names))

        def drop() -> None:
            self._names.pop(name).close()
            self._unfinished.pop(name, None)
            self._queue.drop_consumer(name)

        self._do("drop", drop)


def record(profile: Profile, root: str, seed: int, shim: Shim, fault: str = "") -> History:
    """What that profile does with that seed, below *root*; by a library with that fault, if one is given."""
    os.makedirs(root, exist_ok=True)
    small_groups()
    recorder = Recorder(root, fault)
    work = Work(profile, root, recorder, seed)
    with (
        work.clock.hung_up(),
        shim.listening(recorder.heard),
        grained() if profile.grained else contextlib.nullcontext(),
    ):
        work.go()
    work.close()
    return recorder.history

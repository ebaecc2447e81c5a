"""
What is done before the lights go out: four queues on one disk, a dozen processes with threads, some of them killed.

Each tells in a file of its own, which is not on that disk, what it is about to do and what came of it; and of both, how
many records the disk's log had then. What is killed has told what it began.

| Queue | Durability | Retention | Who works at it |
|---|---|---|---|
| `sync` | SYNC | acked | producers, also with dedup; a group with dead letters; a name that acknowledges |
| `bound` | SYNC | acked, `drop_oldest` at 150 | producers; a name that takes |
| `age` | interval | age | a producer, also with dedup; a name; who asks how far the library has synced |
| `staged` | PROCESS | forever | who stages and hands over; who adopts; a producer that syncs; a group |
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import json
import os
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import shmq
from shmq.storage import sync
from tests.power.workloads import GROUP, dead_letters
from tests.support import Child

from .images import counter, moment_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = (0, 1, 8, 40, 63, 64, 200, 700, 1500, 4000)
LARGE = 20_000
CHUNK_BYTES = 16384
AGE = 0.7
BOUND = 150
NAME, ADOPTER = "name", "adopter"
NEW = "new"
"""Said by a worker when it has joined, so that killing it tells something."""
THREADS = 2
OPTIONS = {
    "sync": shmq.Options(chunk_bytes=CHUNK_BYTES, durability=shmq.Durability.SYNC, retention=shmq.Retention.acked()),
    "bound": shmq.Options(
        chunk_bytes=CHUNK_BYTES,
        durability=shmq.Durability.SYNC,
        retention=shmq.Retention.acked(),
        max_messages=BOUND,
        full="drop_oldest",
    ),
    "age": shmq.Options(
        chunk_bytes=CHUNK_BYTES, durability=shmq.Durability.interval(0.05), retention=shmq.Retention.age(AGE)
    ),
    "staged": shmq.Options(
        chunk_bytes=CHUNK_BYTES, durability=shmq.Durability.PROCESS, retention=shmq.Retention.forever()
    ),
}
FAULTS = ("no data sync", "no snapshot sync")
"""What a library may be told to forget, to show that it is found."""


def payload(name: str) -> bytes:
    """The message of that name: known again without having been kept."""
    chance = random.Random(name)
    size = LARGE if chance.random() < 0.01 else chance.choice(SIZES)
    return name.encode() + b"|" + chance.randbytes(size)


def name_of(data: bytes) -> str:
    """Of a message that `payload` made."""
    return data.partition(b"|")[0].decode()


def break_library(fault: str) -> None:
    """Have this process sync less than it should."""
    if not fault:
        return
    sync.IN_CORE = False
    data, pages = sync.data, sync.pages

    def some_data(fd: int, what: str) -> None:
        chunk = "/chunks/" in os.readlink(f"/proc/self/fd/{fd}")
        if not (chunk if fault == "no data sync" else what == "snapshot"):
            data(fd, what)

    def some_pages(*rest: Any) -> None:
        if fault != "no data sync":
            pages(*rest)

    sync.data, sync.pages = some_data, some_pages


# ---------------------------------------------------------------- telling
class Teller:
    """Where one process says what it does."""

    def __init__(self, told: str, log: str, who: str) -> None:
        self.who = who
        self._file = os.open(f"{told}/{who}", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._counter = counter(log)
        self._numbers = itertools.count()

    def _say(self, what: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(what).encode() + b"\n")

    @contextlib.contextmanager
    def doing(self, queue: str, verb: str, names: tuple[str, ...] = (), **more: Any) -> Iterator[dict[str, Any]]:
        """Around an operation, which puts its answer into what this gives."""
        op = f"{self.who}.{next(self._numbers)}"
        begun = {"op": op, "at": moment_of(self._counter), "wall": time.time_ns(), "queue": queue, "verb": verb}
        self._say({**begun, "names": names, **more})
        answer: dict[str, Any] = {}
        yield answer
        to = moment_of(self._counter)
        facts = answer.pop("facts", None)
        self._say({"op": op, "to": to, "first": facts.first_index if facts else -1, **answer})


@dataclasses.dataclass(frozen=True)
class Place:
    """The folders of the queues and of what is told, the disk's log, when to stop, and the library's fault."""

    queues: str
    told: str
    log: str
    until: float
    fault: str = ""


class Worker:
    """One process at one queue."""

    def __init__(self, place: Place, queue: str, who: str, seed: int) -> None:
        break_library(place.fault)
        self.name = queue
        self.place = place
        self.seed = f"{seed} {who}"
        self.teller = Teller(place.told, place.log, who)
        self.queue = shmq.open(f"{place.queues}/{queue}", create=False, unsafe_filesystem=True)

    def going(self, chance: random.Random, pause: float) -> Iterator[None]:
        """Turns until the time is up, with pauses between."""
        while time.monotonic() < self.place.until:
            yield
            time.sleep(chance.random() * pause)

    def threads(self, work: Callable[[random.Random, str], None]) -> None:
        """Some threads on this one handle; whatever one raises is the process's end."""
        problems: list[BaseException] = []

        def run(number: int) -> None:
            try:
                work(random.Random(f"{self.seed} {number}"), f"{self.teller.who}-{number}")
            except BaseException as problem:  # noqa: BLE001
                problems.append(problem)

        working = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
        for each in working:
            each.start()
        for each in working:
            each.join()
        if problems:
            raise problems[0]


# ---------------------------------------------------------------- putting
class Producer(Worker):
    """Puts in every way there is."""

    def work(self) -> None:
        """Until the time is up."""
        self.threads(self._thread)

    def _thread(self, chance: random.Random, who: str) -> None:
        numbers = itertools.count()
        ways = ("put", "keyed", "many", "reserve", "dedup", *(["sync"] * (self.name == "staged")))
        for _ in self.going(chance, 0.012):
            way = chance.choices(ways, (10, 4, 4, 3, 6, 1)[: len(ways)])[0]
            getattr(self, f"_{way}")(chance, who, next(numbers))

    def _put(self, _: random.Random, who: str, number: int, **more: Any) -> None:
        name = f"{who}.{number}"
        with self.teller.doing(self.name, "put", (name,)) as answer:
            answer.update(index=self.queue.put(payload(name), **more), facts=self.queue)

    def _keyed(self, chance: random.Random, who: str, number: int) -> None:
        self._put(chance, who, number, key=b"key", headers={"n": number})

    def _many(self, chance: random.Random, who: str, number: int) -> None:
        names = tuple(f"{who}.{number}.{part}" for part in range(chance.randint(2, 6)))
        with self.teller.doing(self.name, "put_many", names) as answer:
            answer.update(index=self.queue.put_many([payload(name) for name in names]).start, facts=self.queue)

    def _reserve(self, chance: random.Random, who: str, number: int) -> None:
        data = payload(f"{who}.{number}")
        if chance.random() < 0.2:
            self.queue.reserve(len(data)).abort()
            return
        with self.teller.doing(self.name, "put", (f"{who}.{number}",)) as answer:
            with self.queue.reserve(len(data) + chance.choice((0, 8, 100))) as slot:
                slot.buffer[: len(data)] = data
                time.sleep(chance.choice((0, 0, 0.003)))  # others put behind the open claim
                index = slot.commit(len(data))
            answer.update(index=index, facts=self.queue)

    def _dedup(self, chance: random.Random, who: str, number: int) -> None:
        name = f"{who}.{number}"
        for _ in range(chance.choice((1, 1, 2))):
            with self.teller.doing(self.name, "put", (name,), dedup=[who, number]) as answer:
                answer.update(index=self.queue.put(payload(name), dedup=(who, number)), facts=self.queue)

    def _sync(self, *_: Any) -> None:
        with self.teller.doing(self.name, "sync") as answer:
            behind = self.queue.next_index
            self.queue.sync()
            answer.update(durable=behind, facts=self.queue)


class Stager(Worker):
    """Stages sets and hands them over."""

    def work(self) -> None:
        """Until the time is up."""
        chance = random.Random(self.seed)
        for number, _ in enumerate(self.going(chance, 0.15)):
            names = tuple(f"{self.teller.who}.{number}.{part}" for part in range(chance.randint(1, 30)))
            with self.teller.doing(self.name, "hand over", names) as answer, self.queue.stage() as staged:
                for name in names:
                    staged.put(payload(name))
                answer["token"] = staged.hand_over(owner=names[0])  # by that the adopter knows it


class Adopter(Worker):
    """Adopts what was handed over, one set or two at a time."""

    def work(self) -> None:
        """Until the time is up."""
        chance, sequence = random.Random(self.seed), itertools.count(1)
        for _ in self.going(chance, 0.2):
            waiting = self.queue.staged_sets()[: chance.randint(1, 2)]
            if not waiting:
                continue
            number = next(sequence)
            tokens, owners = [each.token for each in waiting], [each.owner.decode() for each in waiting]
            with self.teller.doing(self.name, "adopt", tokens=tokens, owners=owners, sequence=number) as answer:
                indexes = self.queue.adopt(tokens, dedup=(ADOPTER, number))
                answer.update(index=indexes.start, behind=indexes.stop, facts=self.queue)


class Watcher(Worker):
    """Asks how far the library says that it has synced."""

    def work(self) -> None:
        """Until the time is up."""
        for _ in self.going(random.Random(self.seed), 0.02):
            with self.teller.doing(self.name, "watch") as answer:
                answer.update(durable=self.queue._session.joined().control.durable(), facts=self.queue)


# ---------------------------------------------------------------- getting
def _got(messages: list[Any]) -> dict[int, str]:
    return {each.index: name_of(each.payload) for each in messages}


class Member(Worker):
    """One of a group: acknowledges, gives back and rejects."""

    def work(self) -> None:
        """Until the time is up."""
        chance = random.Random(self.seed)
        with self.queue.consumer(GROUP, group=True, ack="explicit") as member:
            held: list[Any] = []
            for _ in self.going(chance, 0.01):
                with contextlib.suppress(shmq.Empty), self.teller.doing(self.name, "get") as answer:
                    got = member.get_many(chance.randint(1, 12), timeout=0.02)
                    held += got
                    answer.update(got=_got(got), facts=self.queue)
                chance.shuffle(held)
                for _ in range(chance.choice((0, len(held) // 2, len(held), len(held)))):
                    if held:
                        self._settle(chance, member, held)
            held.clear()

    def _settle(self, chance: random.Random, member: Any, held: list[Any]) -> None:
        how = chance.choices(("ack", "many", "nack", "later", "reject"), (20, 15, 2, 1, 3))[0]
        some = [held.pop() for _ in range(min(len(held), chance.randint(2, 8) if how == "many" else 1))]
        if how in ("nack", "later"):
            some[0].nack(delay=3600 if how == "later" else 0)
            return
        indexes = [each.index for each in some]
        verb = "reject" if how == "reject" else "finish"
        try:
            with self.teller.doing(self.name, verb, indexes=indexes) as answer:
                if how == "reject":
                    some[0].reject("no good")
                else:
                    member.ack(*some)
                answer["facts"] = self.queue
        except shmq.SyncPending:  # the disk is slow: it is still held, and its letter perhaps there
            held += some


class Named(Worker):
    """A name of its own, which acknowledges in the order that it likes."""

    def work(self) -> None:
        """Until the time is up."""
        chance = random.Random(self.seed)
        with self.teller.doing(self.name, "name", who=NAME) as answer:
            consumer = self.queue.consumer(NAME, ack="explicit")
            answer["head"] = 0
        held: list[Any] = []
        with consumer:
            for _ in self.going(chance, 0.02):
                with contextlib.suppress(shmq.Empty, shmq.Gone), self.teller.doing(self.name, "get") as answer:
                    got = consumer.get_many(chance.randint(1, 40), timeout=0.02)
                    held += got
                    answer.update(got=_got(got), facts=self.queue)
                held.sort(key=lambda message: message.index)  # what it acknowledged is before its head then
                with self.teller.doing(self.name, "ack", who=NAME) as answer:
                    some = [held.pop(0) for _ in range(chance.choice((0, len(held) // 2, len(held))))]
                    if len(some) == 1:
                        some[0].ack()
                    else:
                        consumer.ack(*some)
                    answer.update(head=consumer.head, facts=self.queue)


class Taker(Worker):
    """A name whose messages are finished as it gets them."""

    def work(self) -> None:
        """Until the time is up."""
        chance = random.Random(self.seed)
        with self.teller.doing(self.name, "name", who=NAME) as answer:
            consumer = self.queue.consumer(NAME)
            answer["head"] = 0
        with consumer:
            for _ in self.going(chance, 0.3):  # so slowly that some are dropped
                with self.teller.doing(self.name, "take", who=NAME) as answer:
                    got: list[Any] = []
                    with contextlib.suppress(shmq.Empty, shmq.Gone):
                        got = consumer.get_many(chance.randint(1, 40), timeout=0)
                    answer.update(got=_got(got), head=consumer.head, facts=self.queue)


class Flusher(Worker):
    """The kernel when memory is short: some pages of some files go to the disk; sometimes everything does."""

    def work(self) -> None:
        """Until the time is up."""
        libc, chance = ctypes.CDLL(None, use_errno=True), random.Random(self.seed)
        for _ in self.going(chance, 0.02):
            files = [f"{at}/{each}" for at, _, some in os.walk(self.place.queues) for each in some]
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(chance.choice(files), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    first = chance.randrange(0, max(os.fstat(fd).st_size, 1), 4096)
                    libc.sync_file_range(fd, ctypes.c_int64(first), ctypes.c_int64(4096 * chance.randint(1, 3)), 2)
                    if chance.random() < 0.01:
                        libc.syncfs(fd)
                finally:
                    os.close(fd)


STAFF: tuple[tuple[str, type[Any], bool], ...] = (
    ("sync", Producer, True),
    ("sync", Producer, False),
    ("sync", Member, True),
    ("sync", Member, False),
    ("sync", Named, False),
    ("bound", Producer, True),
    ("bound", Taker, False),
    ("age", Producer, True),
    ("age", Named, False),
    ("age", Watcher, False),
    ("staged", Producer, True),
    ("staged", Stager, True),
    ("staged", Adopter, False),
    ("staged", Member, True),
    ("sync", Flusher, False),
)
"""(queue, what it does, whether it may be killed; then another one takes its place)"""


# ---------------------------------------------------------------- all of them
def _begin(_: Callable[[object], None], place: Place) -> None:
    """Make the queues, one after the other, and the groups in them."""
    break_library(place.fault)
    teller = Teller(place.told, place.log, "maker")
    for name, options in OPTIONS.items():
        path = f"{place.queues}/{name}"
        with teller.doing(name, "create"):
            queue = shmq.open(path, options=options, unsafe_filesystem=True)
        if (name, Member) in [(each, what) for each, what, _ in STAFF]:
            letters = shmq.Options(chunk_bytes=CHUNK_BYTES, durability=options.durability)
            shmq.open(dead_letters(path), options=letters, unsafe_filesystem=True).close()
            with teller.doing(name, "group"):
                queue.consumer(GROUP, group=True, ack="explicit", window=256, max_attempts=1000).close()
        queue.close()


def _behind(_: Callable[[object], None], place: Place, name: str, who: str) -> None:
    """Tell what is there behind one who was killed inside a put: before somebody who puts after it can drop that."""
    teller = Teller(place.told, place.log, f"behind {who}")
    with (
        teller.doing(name, "look") as answer,
        shmq.open(f"{place.queues}/{name}", create=False, unsafe_filesystem=True) as queue,
    ):
        answer.update(got=_got(list(queue.reader())), first=queue.first_index)


def _end(_: Callable[[object], None], place: Place) -> None:
    """Tell what is there when everybody has gone."""
    teller = Teller(place.told, place.log, "ender")
    for name in OPTIONS:
        with (
            teller.doing(name, "end") as answer,
            shmq.open(f"{place.queues}/{name}", create=False, read_only=True, unsafe_filesystem=True) as queue,
        ):
            answer.update(got=_got(list(queue.reader())), first=queue.first_index)


def _work(say: Callable[[object], None], kind: type[Any], *given: Any) -> None:
    worker = kind(*given)
    say(NEW)
    worker.work()
    if random.Random(worker.seed).random() < 0.5:
        worker.queue.close()
    sys.stdout.flush()


def _done(work: Callable[..., None], *given: Any) -> None:
    with Child(work, *given) as child:
        if child.join(60):
            raise RuntimeError(f"{work.__name__} failed")


def kill(child: Child, place: Place, queue: str, who: str) -> None:
    """kill -9 that worker, and look what it has left."""
    child.kill()
    _done(_behind, place, queue, who)


def work(place: Place, seed: int, kills: int = 4) -> None:
    """
    All of it: made, worked at until the time is up, and looked at.

    Raises:
        RuntimeError: a worker failed that nobody killed.
    """
    chance = random.Random(seed)
    _done(_begin, place)
    with contextlib.ExitStack() as stack:
        staff = [[queue, kind, mortal, 0, None] for queue, kind, mortal in STAFF]

        def start(each: list[Any], number: int) -> None:
            queue, kind, _, generation, _ = each
            who = f"{queue}{number}x{generation}"
            each[4] = stack.enter_context(Child(_work, kind, place, queue, who, seed))

        for number, each in enumerate(staff):
            start(each, number)
        for each in staff:
            each[4].hear(60)
        span = (place.until - time.monotonic()) / (kills + 1)
        for _ in range(kills):
            time.sleep(max(span * (0.5 + chance.random() / 2), 0))
            if time.monotonic() >= place.until:
                break  # the machine is slow
            number = chance.choice([at for at, each in enumerate(staff) if each[2]])
            queue, _, _, generation, child = staff[number]
            kill(child, place, queue, f"{queue}{number}x{generation}")
            staff[number][3] += 1
            start(staff[number], number)
        for each in staff:
            if each[4].join(120):
                raise RuntimeError(f"{each[1].__name__} at {each[0]} failed, and nobody had killed it")
    _done(_end, place)

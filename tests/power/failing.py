"""
Fails the k-th system call of an operation with each errno, for every k, and looks at what is left.

    python -m tests.power.failing [--only NAME] [--call K --error E] [--pairs N --seed S]

What must hold, whatever fails: the operation succeeds, or raises one of our errors or an OSError that says where.
Then, with the same handles: everything that was put is there; what the operation was to put is there as a whole, or
not; reading and putting go on; nothing is left open. And a fresh process finds the same.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import gc
import json
import os
import random
import sys
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import shmq
from tests.crash.recover import Image, image_of, lay_out

from .judge import check
from .shim import AFTER, SHORT, Shim, scratch
from .workloads import keep

if TYPE_CHECKING:
    from collections.abc import Callable

E = errno
ERRORS = {
    "open": (E.EMFILE, E.EIO),
    "make": (E.ENOSPC, E.EMFILE, E.EDQUOT),
    "tmpfile": (E.ENOSPC, E.EDQUOT, E.EMFILE, E.EIO),
    "mkdir": (E.ENOSPC, E.EDQUOT, E.EIO),
    "link": (E.ENOSPC, E.EDQUOT, E.EIO),
    "rename": (E.ENOSPC, E.EIO),
    "unlink": (E.EIO,),
    "rmdir": (E.EIO,),
    "fallocate": (E.ENOSPC, E.EDQUOT, E.EIO, E.EFBIG),
    "truncate": (E.EIO,),
    "write": (E.ENOSPC, E.EIO, SHORT),
    "read": (E.EIO,),
    "fsync": (E.EIO, E.ENOSPC, E.EIO | AFTER),
    "fdatasync": (E.EIO, E.EDQUOT, E.EIO | AFTER),
    "msync": (E.EIO, E.EDQUOT, E.EIO | AFTER),
    "map": (E.ENOMEM,),
    "lock": (E.ENOLCK,),
    "stat": (E.EIO,),
    "chmod": (E.EIO,),
}
"""What each kind of call is made to answer."""
SYNCS = {"fsync", "fdatasync", "msync"}
NAMES = {SHORT: "SHORT", **{code | AFTER: f"{name}-AFTER" for code, name in E.errorcode.items()}, **E.errorcode}
BEFORE = tuple(f"before {number}".encode() for number in range(6))
LARGE = bytes(20_000)


class Hands:
    """One queue, its handles, and what is in it."""

    def __init__(self, path: str, durability: Any, retention: Any) -> None:
        self.path = path
        self.options = shmq.Options(chunk_bytes=16384, durability=durability, retention=retention)
        self.queue: Any = None
        self.consumers: list[Any] = []
        self.tried: tuple[bytes, ...] = ()
        """What the operation was to put."""

    def open(self) -> None:
        """Open it, or make it."""
        self.queue = shmq.open(self.path, options=self.options, unsafe_filesystem=True)

    def close(self) -> None:
        """Everything."""
        for each in self.consumers:
            each.close()
        self.consumers.clear()
        if self.queue is not None:
            self.queue.close()
            self.queue = None

    def put(self, *payloads: bytes) -> None:
        """One batch, or one message."""
        self.tried = payloads
        if len(payloads) == 1:
            self.queue.put(payloads[0])
        else:
            self.queue.put_many(payloads)

    def fill(self) -> None:
        """Until there is no room for another 4,000 bytes in the first chunk."""
        for _ in range(2):
            self.queue.put(bytes(4500))

    def consume(self, name: str, ack: str, limit: int) -> None:
        """Take some."""
        consumer = self.queue.consumer(name, ack=ack)
        self.consumers.append(consumer)
        with contextlib.suppress(shmq.Empty):
            consumer.take_many(limit, timeout=0)

    def adopt(self) -> None:
        """A staged batch of two chunks."""
        batch = tuple(f"{number}".encode() * 2000 for number in range(5))
        self.tried = batch
        with self.queue.stage() as staged:
            staged.put_many(batch[:3])
            staged.put_many(batch[3:])
            self.queue.adopt(staged, dedup=("producer", 1))

    def keep(self) -> None:
        """What the thread of `interval` does when a producer has rolled: the core goes over to the next one."""
        done = keep(self.queue)
        if self.queue._session.joined().control.sync_failed():
            check(not done, "a failed sync counts")
            raise shmq.SyncFailed(f"cannot sync {self.path}")
        check(done, "not all is on the disk, and nobody says so")

    def read(self) -> list[bytes]:
        """Everything, in order."""
        return [message.payload for message in self.queue.reader()]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is done before, unharmed, and what is done while calls fail."""

    name: str
    before: Callable[[Hands], None]
    walked: Callable[[Hands], Any]
    durability: str = "process"
    retention: str = "forever"
    opened: bool = True
    """Whether the process has it open already."""
    promises: bool = False
    """Whether it says that something is on the disk, so that no sync may fail without a word."""


def _some(hands: Hands) -> None:
    for data in BEFORE[:3]:
        hands.queue.put(data)
    hands.queue.put_many(BEFORE[3:])


def _full(hands: Hands) -> None:
    _some(hands)
    hands.fill()


def _two_chunks(hands: Hands) -> None:
    _full(hands)
    hands.queue.put(bytes(4500))


def _rolled(hands: Hands) -> None:
    _some(hands)
    hands.queue.sync()
    hands.fill()
    hands.queue.put(bytes(4500))


def _nothing(hands: Hands) -> None:
    pass


def _shmq_delete(hands: Hands) -> None:
    hands.queue.close()
    shmq.delete(hands.path)


SCENARIOS = (
    Scenario("create", _nothing, Hands.open, opened=False),
    Scenario("open", _some, Hands.open, opened=False),
    Scenario("first put", _nothing, lambda hands: hands.put(b"one")),
    Scenario("put", _some, lambda hands: hands.put(b"one")),
    Scenario("put that rolls", _full, lambda hands: hands.put(bytes(4500))),
    Scenario("batch that rolls", _full, lambda hands: hands.put(bytes(2000), b"", bytes(3000))),
    Scenario("large put", _some, lambda hands: hands.put(LARGE)),
    Scenario("SYNC put", _some, lambda hands: hands.put(b"one"), durability="sync", promises=True),
    Scenario("SYNC put that rolls", _full, lambda hands: hands.put(bytes(4500)), durability="sync", promises=True),
    Scenario("SYNC batch", _some, lambda hands: hands.put(b"one", b"two"), durability="sync", promises=True),
    Scenario("sync", _two_chunks, lambda hands: hands.queue.sync(), promises=True),
    Scenario("interval goes over", _rolled, Hands.keep, promises=True),
    Scenario("new consumer", _some, lambda hands: hands.consume("new", "auto", 2)),
    Scenario("take over chunks", _two_chunks, lambda hands: hands.consume("new", "explicit", 100)),
    Scenario("take and retire", _two_chunks, lambda hands: hands.consume("new", "auto", 100), retention="acked"),
    Scenario("put and retire", _two_chunks, lambda hands: hands.put(bytes(4500), bytes(4500)), retention="bytes"),
    Scenario("adopt", _some, Hands.adopt),
    Scenario("adopt, SYNC", _full, Hands.adopt, durability="sync"),
    Scenario(
        "drop",
        lambda hands: (_some(hands), hands.queue.consumer("a").close())[0],
        lambda hands: hands.queue.drop_consumer("a"),
    ),
    Scenario("read", _two_chunks, Hands.read),
    Scenario("index", _two_chunks, lambda hands: hands.queue[7]),
    Scenario("stats", _two_chunks, lambda hands: hands.queue.stats()),
    Scenario("close", _two_chunks, lambda hands: hands.queue.close()),
    Scenario("SYNC close", _two_chunks, lambda hands: hands.queue.close(), durability="sync"),
)


@dataclasses.dataclass
class Result:
    """What a run came to."""

    trials: int = 0
    raised: int = 0
    seconds: float = 0.0
    findings: list[str] = dataclasses.field(default_factory=list)


class Failer:
    """One scenario, with every call of it failed."""

    def __init__(self, scenario: Scenario, root: str, shim: Shim, result: Result) -> None:
        self._scenario = scenario
        self._root = root
        self._shim = shim
        self._result = result
        self._path = f"{root}/live/q"
        os.makedirs(f"{root}/live", exist_ok=True)
        hands = self._hands()
        if scenario.before is not _nothing or scenario.opened:
            hands.open()
            scenario.before(hands)
        hands.close()
        self._image: Image = image_of(f"{root}/live")

    def _hands(self) -> Hands:
        scenario = self._scenario
        durability = shmq.Durability.SYNC if scenario.durability == "sync" else shmq.Durability.PROCESS
        retention = {
            "forever": shmq.Retention.forever(),
            "acked": shmq.Retention.acked(),
            "bytes": shmq.Retention.bytes(16384),
        }[scenario.retention]
        return Hands(self._path, durability, retention)

    def calls(self) -> list[str]:
        """The kinds of the calls that the operation makes, when nothing fails."""
        for _ in range(2):  # the first time, modules are imported
            hands = self._start()
            if self._scenario.opened:
                hands.read()  # as in each try, or the calls that follow would be others
            self._shim.arm()
            self._scenario.walked(hands)
            kinds = self._shim.disarm()
            hands.close()
        del hands
        gc.collect()
        gc.freeze()  # from here on collecting is quick
        return kinds

    def _start(self) -> Hands:
        lay_out(self._image, f"{self._root}/live")
        hands = self._hands()
        if self._scenario.opened:
            hands.open()
        return hands

    def all(self) -> None:
        """Each call, with each errno."""
        for number, kind in enumerate(self.calls(), 1):
            for error in ERRORS[kind]:
                self.one(number, number, error, kind)

    def one(self, first: int, last: int, error: int, kind: str) -> None:
        """Fail these calls."""
        self._result.trials += 1
        try:
            self._try(first, last, error)
        except Exception as problem:  # noqa: BLE001  # whatever goes wrong is a finding
            if os.environ.get("SHMQ_POWER_TRACE"):
                traceback.print_exception(problem)
            again = f"python -m tests.power.failing --only '{self._scenario.name}' --call {first} --error {error}"
            said = f"{type(problem).__name__}: {problem}".replace("\n", " ")[:600]
            self._result.findings.append(
                f"{self._scenario.name}, call {first} ({kind}) says {NAMES.get(error, error)}: {said}  [{again}]"
            )

    def _try(self, first: int, last: int, error: int) -> None:
        gc.collect()  # what an earlier trial left in a cycle is not this one's
        before = len(os.listdir("/proc/self/fd"))
        hands = self._start()
        there = hands.read() if self._scenario.opened else None
        raised: Exception | None = None
        self._shim.arm(first, last, error)
        try:
            self._scenario.walked(hands)
        except Exception as problem:  # noqa: BLE001  # judged below
            raised = problem
        finally:
            failed = self._shim.disarm()[first - 1 : last]
        self._result.raised += raised is not None
        silent = raised is None and self._scenario.promises and not SYNCS.isdisjoint(failed)
        check(not silent, "a sync failed, and nobody says so", failed)
        if raised is not None:
            _is_clear(raised, self._path)
        indeed = _as_promised(hands, raised)
        raised = None  # it may hold frames, and these handles
        if self._scenario.name != "delete":
            self._after(hands, there, indeed)
        hands.close()
        del hands
        gc.collect()
        left = len(os.listdir("/proc/self/fd"))
        check(left == before, "descriptors are left open", before, left)

    def _after(self, hands: Hands, there: list[bytes] | None, indeed: bool | None) -> None:
        """The same handles, then fresh ones."""
        if hands.queue is not None and not hands.queue.closed:
            if there is not None:
                _holds(hands.read(), there, hands.tried, indeed, self._scenario.retention)
            _still_puts(hands, self._scenario)
        hands.close()
        fresh = self._hands()
        fresh.open()
        found = fresh.read()
        if there is not None:
            _holds(
                [each for each in found if each != b"afterwards"], there, hands.tried, indeed, self._scenario.retention
            )
        fresh.put(b"afterwards")
        with fresh.queue.consumer("fresh") as consumer:
            got = [consumer.take(timeout=0) for _ in range(len(found) + 1)]
        check(got == [*found, b"afterwards"], "a consumer does not get what a reader reads", len(found), len(got))
        fresh.close()


def _still_puts(hands: Hands, scenario: Scenario) -> None:
    try:
        index = hands.queue.put(b"afterwards")
    except shmq.SyncFailed:
        check(scenario.durability == "sync", "a queue that syncs nothing says that its disk failed")
        return  # the disk failed: nothing is accepted until a verified reopening
    check(hands.queue[index].payload == b"afterwards", "what was put afterwards is not there", index)


def _is_clear(problem: Exception, path: str) -> None:
    """One of ours, or the kernel's, saying where."""
    check(isinstance(problem, (shmq.ShmqError, OSError)), "no error for a user", type(problem), problem)
    text = str(problem)
    check(os.path.basename(path) in text or "/proc/" in text, "an error that does not say where", repr(problem))


def _as_promised(hands: Hands, raised: Exception | None) -> bool | None:
    """Whether what was tried must be there; None when either is fine."""
    if raised is None:
        return True
    if isinstance(raised, (shmq.SyncFailed, shmq.SyncPending)):
        return None  # it may be in the queue, and says so
    return False


def _holds(found: list[bytes], there: list[bytes], tried: tuple[bytes, ...], indeed: bool | None, kept: str) -> None:
    whole = [*there, *tried]
    if kept != "forever":  # the oldest may have gone
        check(
            found == whole[len(whole) - len(found) :] or found == there[len(there) - len(found) :], "lost", len(found)
        )
        return
    if indeed is False and len(tried) > 1 and found == whole:
        indeed = None  # adoption: it was decided before the failure
    wanted = {True: [whole], False: [there], None: [there, whole]}[indeed]
    check(found in wanted, "lost, or half done", [len(each) for each in found], [len(each) for each in wanted[0]])


def run(only: str = "", call: int = 0, error: int = 0) -> Result:
    """All scenarios whose name is, or contains, *only*; one call alone if it is given."""
    shim, result = Shim(), Result()
    began = time.monotonic()
    chosen = [each for each in SCENARIOS if each.name == only] or [each for each in SCENARIOS if only in each.name]
    with warnings.catch_warnings(), scratch() as root:
        warnings.simplefilter("ignore")
        for number, scenario in enumerate(chosen):
            failer = Failer(scenario, f"{root}/{number}", shim, result)
            if call:
                kinds = failer.calls()
                failer.one(call, call, error, kinds[call - 1])
            else:
                failer.all()
    result.seconds = time.monotonic() - began
    return result


def pairs(count: int, seed: int) -> Result:
    """Runs of failing calls of random length, from a random call on."""
    shim, result, chance = Shim(), Result(), random.Random(seed)
    began = time.monotonic()
    with warnings.catch_warnings(), scratch() as root:
        warnings.simplefilter("ignore")
        failers = [Failer(each, f"{root}/{number}", shim, result) for number, each in enumerate(SCENARIOS)]
        failers = [failer for failer in failers if failer.calls()]  # some get along without the kernel
        kinds = [failer.calls() for failer in failers]
        for _ in range(count):
            which = chance.randrange(len(failers))
            first = chance.randrange(len(kinds[which])) + 1
            kind = kinds[which][first - 1]
            failers[which].one(first, first + chance.randint(1, 20), chance.choice(ERRORS[kind]), kind)
    result.seconds = time.monotonic() - began
    return result


def main() -> int:
    """Do what was asked; the result as JSON in the last line."""
    parser = argparse.ArgumentParser(prog="tests.power.failing")
    parser.add_argument("--only", default="")
    parser.add_argument("--call", type=int, default=0)
    parser.add_argument("--error", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    result = pairs(given.pairs, given.seed) if given.pairs else run(given.only, given.call, given.error)
    print(json.dumps(dataclasses.asdict(result)))
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())

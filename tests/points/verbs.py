"""
Every public verb in a small scenario, and a judge who knows what must hold afterwards, whatever happened in the middle.

A `Verb` is made ready, run (something happens to it: see the suites), run once more, and closed twice. Then nothing may
be left: no descriptor, thread, lock, name that is held, or set in staging; and a new handle, and another process, work.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from support import in_child, until

import shmq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BASE = 6
"""Messages that are there before: two chunks of them."""
CHUNK = {"chunk_bytes": 16384, "retention": shmq.Retention.forever()}


class Verb(NamedTuple):
    """One verb: *ready* makes what it works on, *run* does it; *run* gets the queue and what *ready* returned."""

    name: str
    run: Callable[..., Any]
    ready: Callable[[shmq.Queue], Any] = lambda _: None
    options: dict[str, Any] = {}  # noqa: RUF012  # never changed
    refusals: tuple[type[Exception], ...] = ()
    """What running it once more may raise."""
    puts: int = 0
    """Messages of a new number that it puts: all of them or none, each time that it is run."""
    leaves: bool = False
    """Whether what was put may be missing for good when it was interrupted: it is aside, and forgotten."""


def numbered(number: int, size: int = 2500) -> bytes:
    """The payload of that number."""
    return b"%06d" % number + bytes(size - 6)


def _one(queue: shmq.Queue, **options: Any) -> Any:
    return queue.consumer("c", ack="explicit", start="earliest", **options)


def _group(queue: shmq.Queue, **options: Any) -> Any:
    return queue.consumer("g", group=True, ack="explicit", start="earliest", **options)


def _held(queue: shmq.Queue, **options: Any) -> Any:
    group = _group(queue, **options)
    return group, group.get_many(2, timeout=0)


def _staged(queue: shmq.Queue) -> Any:
    staged = queue.stage()
    staged.put_many([numbered(7)] * 2)
    return staged


def _reserve(queue: shmq.Queue, _: Any) -> None:
    with queue.reserve(2500) as slot:
        slot.buffer[:] = numbered(7)


def _stage(queue: shmq.Queue, _: Any) -> None:
    with queue.stage() as staged:
        for _turn in range(8):  # a second chunk, too
            staged.put(numbered(7))


def _pinned(queue: shmq.Queue, _: Any) -> None:
    with queue.reader(start=0, pin=True) as reader:
        next(reader)


def _adopt_token(queue: shmq.Queue, token: str) -> None:
    with contextlib.suppress(shmq.NotFound):
        queue.adopt(token)


def _wait(_: shmq.Queue, consumer: Any) -> None:
    shmq.wait([consumer], timeout=0)


def _columns(queue: shmq.Queue, _: Any) -> None:
    queue.read_columns(0, BASE)


def _arrow(queue: shmq.Queue, _: Any) -> None:
    list(queue.read_arrow(0, BASE))


def _records(queue: shmq.Queue, _: Any) -> None:
    import numpy as np

    record = np.dtype({"names": ["zeros"], "formats": ["<u4"], "offsets": [6], "itemsize": len(numbered(0))})
    for batch in queue.read_arrow(0, BASE, record=record):
        assert set(batch["zeros"].to_pylist()) == {0}


def _open_twice(queue: shmq.Queue, _: Any) -> None:
    shmq.open(queue.path).close()


def _read_only(queue: shmq.Queue, _: Any) -> None:
    with shmq.open(queue.path, read_only=True) as other:
        assert len(list(other.reader(start=0))) >= BASE


def _open_alone(queue: shmq.Queue, _: Any) -> None:
    queue.close()
    shmq.open(queue.path).close()


def _consumers_read_only(queue: shmq.Queue, _: Any) -> None:
    with shmq.open(queue.path, read_only=True) as other:
        assert {"c", "g"} <= set(other.consumers())


def _put_arrow(queue: shmq.Queue, batch: Any) -> None:
    queue.put_arrow(batch)


def _batch(queue: shmq.Queue) -> Any:
    (batch,) = queue.read_arrow(0, 1, columns=["payload"])
    rows = [numbered(7)] * 3
    return type(batch).from_pydict({"payload": rows}, schema=batch.schema)


def _gone(queue: shmq.Queue) -> None:
    with shmq.open(f"{queue.path}.gone") as other:
        other.put(b"x")


def _delete(queue: shmq.Queue, _: Any) -> None:
    shmq.delete(f"{queue.path}.gone")


def _one_and_group(queue: shmq.Queue) -> None:
    _one(queue).close()
    _group(queue).close()


def _volatile(queue: shmq.Queue, _: Any) -> None:
    with shmq.open(f"shm:points-{os.getpid()}") as other:
        other.put(b"x")


def _copy(queue: shmq.Queue, _: Any) -> None:
    shutil.rmtree(f"{queue.path}.copy", ignore_errors=True)
    queue.copy(f"{queue.path}.copy")


def _repair(queue: shmq.Queue, _: Any) -> None:
    shutil.rmtree(f"{queue.path}.repaired", ignore_errors=True)
    queue.repair()


def _drop(queue: shmq.Queue, _: Any) -> None:
    queue.drop_consumer("old")


def _old(queue: shmq.Queue) -> None:
    with contextlib.suppress(shmq.NotFound):
        queue.drop_consumer("new")
    queue.consumer("old").close()


def _forward(queue: shmq.Queue, held: Any) -> None:
    with held[1][0].forward() as f:
        f.put(queue, numbered(7))


def _forward_both(queue: shmq.Queue, held: Any) -> None:
    with shmq.forward(*held[1]) as f:
        for message in held[1]:
            f.put(queue, numbered(7), message=message)


def _expired(queue: shmq.Queue) -> Any:
    group = _group(queue, max_attempts=1)
    return group, group.get_many(2, timeout=0)


SYNC, INTERVAL = {"durability": shmq.Durability.SYNC}, {"durability": shmq.Durability.interval(60)}
BOUND = {"max_messages": 1000}

VERBS = [
    # ---- opening and closing
    Verb("open", _open_twice),
    Verb("open alone", _open_alone),
    Verb("open read-only", _read_only),
    Verb("open volatile", _volatile),
    Verb("open interval", _open_alone, options=INTERVAL),
    Verb("open sync", _open_alone, options=SYNC),
    Verb("close", lambda queue, _: queue.close()),
    Verb("close sync", lambda queue, _: queue.close(), lambda queue: queue.put(numbered(7)), SYNC),
    Verb("close interval", lambda queue, _: queue.close(), options=INTERVAL),
    Verb("producer", lambda queue, _: queue.producer().close()),
    Verb("producer.close", lambda _, producer: producer.close(), lambda queue: queue.producer()),
    Verb("consumer", lambda queue, _: _one(queue).close(), refusals=()),
    Verb("consumer sync", lambda queue, _: _one(queue).close(), options=SYNC),
    Verb("consumer hold", lambda queue, _: _one(queue, hold=True).close()),
    Verb("consumer filter", lambda queue, _: _one(queue, filter=shmq.Filter(types={0})).close()),
    Verb("consumer ephemeral", lambda queue, _: _one(queue, ephemeral=True).close()),
    Verb("group ephemeral", lambda queue, _: _group(queue, ephemeral=True).close()),
    Verb("consumer.close", lambda _, consumer: consumer.close(), _one),
    Verb("consumer.close interval", lambda _, consumer: consumer.close(), _one, INTERVAL),
    Verb("group", lambda queue, _: _group(queue).close()),
    Verb("group.close", lambda _, held: held[0].close(), _held),
    Verb("group.close sync", lambda _, held: held[0].close(), _held, SYNC),
    Verb("reader", lambda queue, _: next(queue.reader(start=0))),
    Verb("reader pin", _pinned),
    Verb("reader.close", lambda _, reader: reader.close(), lambda queue: queue.reader(start=0, pin=True)),
    # ---- putting
    Verb("put", lambda queue, _: queue.put(numbered(7)), puts=1),
    Verb("put fields", lambda queue, _: queue.put(numbered(7), key=b"k", headers={"a": 1}, ttl=1000.0), puts=1),
    Verb("put sync", lambda queue, _: queue.put(numbered(7)), options=SYNC, puts=1, refusals=(shmq.SyncPending,)),
    Verb("put bounded", lambda queue, _: queue.put(numbered(7)), options=BOUND, puts=1),
    Verb("put_many", lambda queue, _: queue.put_many([numbered(7)] * 3), puts=3),
    Verb("put_arrow", _put_arrow, _batch, puts=3),
    Verb("put dedup", lambda queue, _: queue.put(numbered(7), dedup=("p", 1)), puts=1),
    Verb("reserve", _reserve, puts=1),
    Verb("stage", _stage),
    Verb("stage.put", lambda _, staged: staged.put_many([numbered(7)] * 5), _staged),
    Verb("stage.close", lambda _, staged: staged.close(), _staged),
    Verb("hand_over", lambda _, staged: staged.hand_over(), _staged),
    Verb("adopt", lambda queue, staged: queue.adopt(staged), _staged, puts=2, refusals=(shmq.Closed,)),
    Verb("adopt a token", _adopt_token, lambda queue: _staged(queue).hand_over(), puts=2),
    Verb("sweep_staged", lambda queue, _: queue.sweep_staged(older_than=0), lambda queue: _staged(queue).hand_over()),
    # ---- taking
    Verb("get", lambda _, consumer: consumer.get(timeout=0), _one),
    Verb("get_many", lambda _, consumer: consumer.get_many(9, timeout=0), _one, refusals=(shmq.Empty,)),
    Verb("take", lambda _, consumer: consumer.take(timeout=0), _one),
    Verb("take_many", lambda _, consumer: consumer.take_many(9, timeout=0), _one, refusals=(shmq.Empty,)),
    Verb("take_arrow", lambda _, consumer: consumer.take_arrow(9, timeout=0), _one, refusals=(shmq.Empty,)),
    Verb("peek", lambda _, consumer: consumer.peek(), _one),
    Verb("ack", lambda _, message: message.ack(), lambda queue: _one(queue).get(timeout=0)),
    Verb("ack sync", lambda _, message: message.ack(), lambda queue: _one(queue).get(timeout=0), SYNC),
    Verb("seek", lambda _, consumer: consumer.seek(0), _one),
    Verb("wait", _wait, _one),
    Verb("group.get", lambda _, group: group.get(timeout=0), _group),
    Verb("group.take", lambda _, group: group.take(timeout=0), _group),
    Verb("group.ack", lambda _, held: held[1][0].ack(), _held),
    Verb("group.ack many", lambda _, held: held[0].ack(*held[1]), _held),
    Verb("group.nack", lambda _, held: held[1][0].nack(), _held),
    Verb("group.nack later", lambda _, held: held[1][0].nack(delay=0.001), _held),
    Verb("group.nack last", lambda _, held: held[1][0].nack(), _expired),
    Verb("group.reject", lambda _, held: held[1][0].reject("no"), _held),
    Verb("group.extend", lambda _, held: held[1][0].extend(9), lambda queue: _held(queue, lease=9)),
    Verb("group.seek", lambda _, group: group.seek(0), _group),
    Verb("forward", _forward, _held, refusals=(shmq.LeaseLost,), puts=1),
    Verb("forward sync", _forward, _held, SYNC, refusals=(shmq.LeaseLost,), puts=1),
    Verb("forward many", _forward_both, _held, refusals=(shmq.LeaseLost,), puts=2),
    Verb("group.skip", lambda _, group: group.skip(3), _group),
    Verb("group.peek", lambda _, group: group.peek(), _group),
    # ---- looking and administering
    Verb("getitem", lambda queue, _: queue[BASE - 1]),
    Verb("at", lambda queue, _: queue.at_ns(1)),
    Verb("read_columns", _columns),
    Verb("read_arrow", _arrow),
    Verb("read_arrow record", _records),
    Verb("sync", lambda queue, _: queue.sync()),
    Verb("stats", lambda queue, _: queue.stats(), _one_and_group),
    Verb("consumers read-only", _consumers_read_only, _one_and_group),
    Verb("verify", lambda queue, _: queue.verify()),
    Verb("copy", _copy),
    Verb("repair", _repair),
    Verb("set_bounds", lambda queue, _: queue.set_bounds(max_messages=500)),
    Verb("purge", lambda queue, _: queue.purge(), _one),
    Verb("drop_consumer", _drop, _old, refusals=(shmq.NotFound,)),
    Verb("rename_consumer", lambda queue, _: queue.rename_consumer("old", "new"), _old, refusals=(shmq.NotFound,)),
    Verb("shutdown", lambda queue, _: queue.shutdown()),
    Verb("shutdown at once", lambda queue, _: queue.shutdown(immediate=True)),
    Verb("delete", _delete, _gone, refusals=(shmq.NotFound,)),
    Verb("finish", lambda queue, _: queue.finish()),
]
BY_NAME = {verb.name: verb for verb in VERBS}


# ---------------------------------------------------------------- the judge
def descriptors() -> dict[str, str]:
    """What this process has open."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
    return {fd: file for fd, file in found.items() if not file.startswith("/proc/")}


class World:
    """One queue for all rounds of one verb, made anew by `fresh`."""

    def __init__(self, verb: Verb, folder: str) -> None:
        """Nothing is made yet."""
        self.verb = verb
        self.folder = folder
        self.path = ""
        self._count = 0
        self.problems: list[str] = []
        """What was raised where nobody was told."""

    def fresh(self) -> None:
        """Make the queue of the next round."""
        if self.path:
            shutil.rmtree(self.folder)
            os.mkdir(self.folder)
        self._count += 1
        self.path = f"{self.folder}/q{self._count}"
        with shmq.open(self.path, options=shmq.Options(**{**CHUNK, **self.verb.options})) as queue:
            queue.put_many([numbered(number) for number in range(BASE)])

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """What a finalizer raises is a problem, too."""
        before = sys.unraisablehook
        sys.unraisablehook = lambda told: self.problems.append(f"{told.object!r}: {told.exc_value!r}")
        try:
            yield
        finally:
            sys.unraisablehook = before

    def round(
        self,
        happens: Callable[[], contextlib.AbstractContextManager[object]],
        *,
        elsewhere: bool = False,
        leaks: bool = True,
    ) -> None:
        """One round, with what *happens* while the verb runs; then what must hold. *leaks*: nothing open or unsaid."""
        self.fresh()
        before, threads = descriptors(), threading.active_count()
        with self.watched():
            self._run(happens)
            if leaks and self._opened_since(before):
                gc.collect()  # what a cycle holds is not lost
        problems = [each for each in self.problems if "unclosed" not in each]  # it is closed, and complains
        assert problems == [] or not leaks
        left = self._opened_since(before) if leaks else {}
        assert left == {}, f"descriptors {left}"
        if threading.active_count() > threads:
            gc.collect()
            until(lambda: threading.active_count() <= threads)  # one that was told to end may be about to
        self.judge(elsewhere=elsewhere)

    def _opened_since(self, before: dict[str, str]) -> dict[str, str]:
        """What this process has open of the queue, and had not; or of no place."""
        ours = (self.folder, "/dev/shm", "anon_inode")
        return {fd: file for fd, file in descriptors().items() if before.get(fd) != file and file.startswith(ours)}

    def _run(self, happens: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
        verb = self.verb
        queue = shmq.open(self.path)
        state = verb.ready(queue)
        returned, runs = 0, 1
        with contextlib.suppress(shmq.SyncPending), happens():  # what a handler raises may end a wait for the disk
            verb.run(queue, state)
            returned += 1
        if not queue.closed:
            runs += 1
            with contextlib.suppress(*verb.refusals):
                verb.run(queue, state)
                returned += 1
        for handle in [*(state if isinstance(state, tuple) else [state]), queue]:
            for _ in range(2):
                if hasattr(handle, "close"):
                    handle.close()
        self.runs, self.returned = runs, returned

    def judge(self, *, elsewhere: bool = False) -> None:
        """A new handle finds everything, once, and every name free; here, or in another process."""
        if elsewhere:
            assert in_child(self._judged) == "judged"
        else:
            self._judged()

    def _forward_what_comes(self, queue: shmq.Queue) -> None:
        """Whether an earlier try has put it, or not: it is there once then, and the message finished."""
        with _group(queue) as group:
            while group.floor < self.verb.puts:
                for message in group.get_many(BASE, timeout=5.0):
                    if message.index < self.verb.puts:
                        _forward(queue, (group, [message]))

    def _judged(self) -> str:
        verb = self.verb
        with contextlib.suppress(FileNotFoundError):
            assert os.listdir(f"{self.path}.gone") == []  # interrupted before its very last step
        with shmq.open(self.path) as queue:
            staging = f"{self.path}/staging"
            handed = {found.token.split("-")[1] for found in queue.staged_sets()}
            if os.path.isdir(staging):
                assert set(os.listdir(staging)) <= handed, "staging"
            with queue._session.home.admin(timeout=0):
                pass
            if verb.name == "purge":
                return "judged"
            if verb.name.startswith("forward"):
                self._forward_what_comes(queue)
            found = [message.payload for message in queue.reader(start=0)]
            assert found[:BASE] == [numbered(number) for number in range(BASE)]
            assert all(payload == numbered(7) for payload in found[BASE:])
            if verb.puts:
                done = (len(found) - BASE) / verb.puts
                once = verb.name.startswith(("put dedup", "adopt", "forward"))
                least, most = (1, 1) if once else (self.returned, self.runs)
                assert least <= done <= most, f"{done} of {self.runs}, {self.returned} returned"
            for name in queue.consumers():
                with queue.consumer(name, group=name == "g", ack="auto" if name in ("old", "new") else "explicit"):
                    pass
            queue.put(b"last")
            with queue.consumer("judge", start="earliest") as consumer:
                seen = consumer.take_many(1000, timeout=0)
                while seen[-1] != b"last":
                    seen += consumer.take_many(1000, timeout=5)
            assert seen == [*found, b"last"]
            assert queue.verify(), "verify"
        return "judged"

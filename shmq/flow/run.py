"""One run of a flow: its workers, the source, Ctrl-C, and the end."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import shmq
from shmq import workers
from shmq.flow import feeding, tries
from shmq.flow.bench import DRAINED, READY, REFUSED
from shmq.flow.counts import Summary, count
from shmq.flow.place import GROUP
from shmq.flow.progress import Progress
from shmq.flow.work import work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shmq.flow.place import Place
    from shmq.flow.plan import Stage

_LOOK = 0.05
_LEAVE_WITHIN = 2.0
"""Seconds that workers are given to finish what they do, before they are killed: what they have comes again."""
_DEATHS, _KILLS = 5, 50
"""So many workers of a stage that die one after another before one can begin are enough; that somebody kills."""


class StageDied(shmq.ShmqError):
    """Workers of a stage die before they can begin. What is in the queues stays; the next run goes on."""


class Interrupts:
    """
    SIGINT, counted. The first one ends what the source does just now, and nothing else.

    Attributes:
        count: how many there were.
        in_source: whether the source is at it.
    """

    def __init__(self) -> None:
        """Counted within its block."""
        self.count = 0
        self.in_source = False
        self._before: Any = None

    def __enter__(self) -> Self:
        """Count, if this is the thread that hears of signals, and they are not ignored."""
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before not in (None, signal.SIG_IGN):
                self._before = before
                signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it to whom it was."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: object) -> None:  # noqa: ARG002  # a handler's signature
        self.count += 1
        if self.in_source:
            raise KeyboardInterrupt

    def check(self, allowed: int) -> None:
        """Raise KeyboardInterrupt if there were more than so many."""
        if self.count > allowed:
            raise KeyboardInterrupt


class Run:
    """One run, from the first queue to the last."""

    def __init__(self, place: Place, stages: Sequence[Stage], context: Any, *, progress: bool | None) -> None:
        """Nothing is started yet."""
        self._place = place
        self._stages = stages
        self._context = context
        self._shown = progress
        self._drained: set[int] = set()
        self._began: set[int] = set()
        self._deaths = [0] * len(stages)
        self._died: StageDied | None = None
        self._news = threading.Event()
        self._queues: list[shmq.Queue[Any]] = []
        self._interrupts = Interrupts()

    def run(self, source: Iterable[Any] | shmq.Queue[Any]) -> Summary:
        """To the end of all stages."""
        began = time.monotonic()
        with self._interrupts, contextlib.ExitStack() as opened:
            self._open(opened)
            pools = [self._pool(number) for number in range(len(self._stages))]
            try:
                for pool in pools:
                    pool.start()
                with Progress(self._place, self._stages, shown=self._shown):
                    self._feed_and_drain(source)
            except BaseException:
                _leave(pools)
                raise
            _leave(pools, within=None)
            for queue in self._queues:  # with what came of it: what is over is so after a power cut, too
                queue.sync()
            found = count(self._place, self._stages)
            summary = Summary(found[0].items, found, time.monotonic() - began)
            self._place.end(summary.to_json())
            self._interrupts.check(0)  # all was in the queues already, and is through
            return summary

    def _open(self, opened: contextlib.ExitStack) -> None:
        """The queues and groups of all stages; made where they are missing, before any worker looks for them."""
        tries.forget_hands(self._place.path)
        for number, stage in enumerate(self._stages):
            queue = opened.enter_context(self._place.queue(number, stage, create=True))
            self._place.consumer(number, stage, queue).close()
            self._queues.append(queue)
        last = self._stages[-1]
        if not last.sink and last.target is None:
            self._place.out(create=True).close()

    # ---- workers
    def _pool(self, number: int) -> workers.Workers:
        stage = self._stages[number]
        following = None
        if number + 1 < len(self._stages):  # its function is for its own workers
            following = dataclasses.replace(self._stages[number + 1], function=None, target=None)
        return workers.Workers(
            work,
            (self._place, number, stage, following),
            count=stage.workers,
            context=self._context,
            name=f"shmq-flow-{stage.name}",
            on_end=functools.partial(self._on_end, number),
            on_word=functools.partial(self._on_word, number),
        )

    def _on_word(self, number: int, pid: int, word: bytes) -> None:
        if word == READY:
            self._began.add(pid)
            self._deaths[number] = 0
        elif word == DRAINED:
            self._drained.add(number)
            self._news.set()
        elif word.startswith(REFUSED):
            self._dies(number, word.removeprefix(REFUSED).decode())

    def _on_end(self, number: int, ended: workers.Ended) -> bool:
        tries.bury(self._place.path, number, ended.pid)
        if number in self._drained:
            return False
        if ended.pid in self._began:
            self._began.discard(ended.pid)
            return True
        self._deaths[number] += _KILLS // _DEATHS if ended.signal is None else 1
        if self._deaths[number] < _KILLS:
            return True
        self._dies(number, f"its workers die before they can begin, the last one: {ended}")
        return False

    def _dies(self, number: int, why: str) -> None:
        name = self._stages[number].name
        self._died = StageDied(
            f"stage {name!r} of the flow {self._place.path} cannot go on: {why}; what is in its queues stays there"
        )
        self._news.set()

    # ---- the source
    def _feed_and_drain(self, source: Iterable[Any] | shmq.Queue[Any]) -> None:
        problem: BaseException | None = None
        if not self._queues[0].finished:
            try:
                if isinstance(source, shmq.Queue):
                    self._feed_from_queue(source)
                else:
                    self._feed(source)
            except StageDied:
                raise
            except Exception as raised:  # noqa: BLE001  # of the source; what it gave before goes through first
                problem = raised
            except KeyboardInterrupt as raised:
                if self._interrupts.count != 1:  # not ours, or the second one
                    raise
                problem = raised
        if problem is None:
            self._queues[0].finish()
            self._wait_for_the_end()
            return
        self._drain()
        raise problem

    def _feed(self, source: Iterable[Any]) -> None:
        first = self._queues[0]
        skipped = feeding.fed(first)
        feeder = feeding.Feeder(first, skipped, self._stages[0].bound)
        try:
            try:
                for number, item in enumerate(self._each(source)):
                    if number < skipped:
                        continue
                    while not feeder.offer(item):
                        self._check()
                        self._interrupts.check(0)
            finally:  # what it gave is put, however it ended
                while not feeder.end():
                    self._check()
                    self._interrupts.check(1)
        except BaseException:
            feeder.stop()
            raise

    def _each(self, source: Iterable[Any]) -> Iterable[Any]:
        """The source's items; what is interrupted is the source alone."""
        interrupts = self._interrupts
        interrupts.check(0)
        interrupts.in_source = True
        try:
            for item in source:
                interrupts.in_source = False
                self._check()
                interrupts.check(0)
                yield item
                interrupts.in_source = True
        finally:
            interrupts.in_source = False

    def _feed_from_queue(self, source: shmq.Queue[Any]) -> None:
        """Each message is taken there and put here in one act."""
        with source.consumer(self._place.source_name(), group=True, ack="explicit") as consumer:
            while True:
                self._check()
                self._interrupts.check(0)
                try:
                    message = consumer.get(timeout=_LOOK)
                    with message.forward() as forward:
                        forward.put(self._queues[0], message.payload)
                except shmq.Empty:
                    continue
                except shmq.ShutDown:
                    return
                except shmq.DiskFull:
                    time.sleep(_LOOK)

    # ---- the end
    def _check(self) -> None:
        if self._died is not None:
            raise self._died

    def _wait_for_the_end(self) -> None:
        """Until all stages are drained; the second Ctrl-C leaves."""
        while len(self._drained) < len(self._stages):
            self._news.clear()
            self._check()
            self._interrupts.check(1)
            self._news.wait(_LOOK)

    def _drain(self) -> None:
        """Until nothing is in any queue, though more may come another time."""
        for queue in self._queues:  # what the first one has finished is in the second
            while queue.consumers()[GROUP].lag:
                self._check()
                self._interrupts.check(1)
                time.sleep(_LOOK)


def _leave(pools: Sequence[workers.Workers], *, within: float | None = _LEAVE_WITHIN) -> None:
    """Have all workers leave; after that time at once."""
    for pool in pools:
        pool.stop(wait=False)
    until = None if within is None else time.monotonic() + within
    for pool in pools:
        left = None if until is None else max(until - time.monotonic(), 0.0)
        if not pool.stop(timeout=left):
            pool.kill()
            pool.stop()

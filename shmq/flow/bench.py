"""
A worker: it takes an item, calls the stage's function, and puts what comes of it as it finishes the item.

That is one act (`shmq.Message.forward`): killed at any moment, the item comes to another worker, and what an earlier
try had put is not put again. A sink's function has no such act: its item is acknowledged behind the call, so it may be
called twice for one item when a worker is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import shmq
from shmq.flow.plan import AHEAD
from shmq.flow.tries import Tries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmq import workers
    from shmq.flow.place import Place
    from shmq.flow.plan import Stage

_log = logging.getLogger("shmq.flow")
READY, DRAINED, REFUSED = b"ready", b"drained", b"refused "
"""What a worker says: it can begin; all items of its stage are finished; the next queue refuses them, and why."""
_ROOM = 32 << 20
"""With less than so many bytes left, a disk that was full is taken for full."""
_LOOK_AT_DISK = 0.2
_PATIENCE = 5.0
"""Seconds after which to try all the same."""
_AGAIN = 1.0
"""Seconds until items come again that the next queue had no room for."""
_BACKOFF_MAX = 60.0
_REASON_MAX = 4000
_RUN = 0.005
"""Seconds of work that are taken, and finished, together: what is quick pays less for each."""


class Failed(Exception):  # named for what is so
    """Raised from what a stage's function has raised, or from what is wrong with its answer."""


def outputs_of(answer: Any) -> list[Any]:
    """What is put for one item: nothing for None; all that an iterator yields; else what was answered, as it is."""
    if answer is None:
        return []
    return list(answer) if isinstance(answer, Iterator) else [answer]


class Bench:
    """One worker's way from the queue of its stage to the next one."""

    def __init__(self, life: workers.Life, place: Place, number: int, stage: Stage, following: Stage | None) -> None:
        """Open both, as `with` closes them."""
        self.life = life
        self.stage = stage
        self._place = place
        self._number = number
        self._following = following
        self._opened = contextlib.ExitStack()
        self.target: shmq.Queue[Any] | None = None
        self.each = _RUN
        """Seconds that an item takes, lately."""

    def __enter__(self) -> Self:
        """Open them, as soon as there is room on the disk for what that takes."""
        while True:
            try:
                self._open()
            except shmq.DiskFull as problem:
                self._wait_for_room(problem)
                self.life.wait(lambda: None)  # it may be to leave meanwhile
            else:
                return self

    def _open(self) -> None:
        with contextlib.ExitStack() as opened:
            self.queue = opened.enter_context(self._place.queue(self._number, self.stage))
            self.consumer = opened.enter_context(self._place.consumer(self._number, self.stage, self.queue))
            tries = Tries(self._place.path, self._number, self.stage.batch or 1)
            self.tries = opened.enter_context(contextlib.closing(tries))
            if self.stage.target is not None:
                self.target = opened.enter_context(self.stage.target)
            elif self._following is not None:
                self.target = opened.enter_context(self._place.queue(self._number + 1, self._following))
            elif not self.stage.sink:
                self.target = opened.enter_context(self._place.out())
            self._opened = opened.pop_all()

    def __exit__(self, *_: object) -> None:
        """Close them: what is not finished goes to others."""
        self._opened.close()

    # ---- taking
    def run(self) -> None:
        """Until the stage is drained, or this worker is to leave."""
        while not self.life.ending:
            try:
                messages = self.take()
            except shmq.ShutDown:  # all items are finished, and all that came of them is put
                self.pass_on_the_end()
                return
            if messages:
                self.handle(messages)

    def take(self) -> list[shmq.Message[Any]]:
        """
        What to do next; nothing after a wait.

        Raises:
            ShutDown: there will be nothing any more.
        """
        try:
            return self.consumer.get_many(self.share(), timeout=0)
        except shmq.Empty:
            self.life.wait(lambda: shmq.wait([self.consumer]))
            return []

    def share(self) -> int:
        """How many to take at once."""
        return self.stage.batch or max(min(int(_RUN / max(self.each, 1e-9)), AHEAD), 1)

    def pass_on_the_end(self) -> None:
        """Nothing comes to the next queue any more."""
        if self.target is not None and self.stage.target is None:  # a queue of the user's may have other producers
            self.target.finish()
        self.life.say(DRAINED)

    # ---- doing
    def handle(self, messages: list[shmq.Message[Any]]) -> None:
        """Call the function for these, and finish them."""
        done: list[shmq.Message[Any]] = []
        outputs: list[list[Any]] = []
        for some in self._calls(messages):
            before = time.perf_counter()
            try:
                answers = self.answers(some)
            except Failed as problem:
                if len(some) == 1:
                    self.fail(some[0], problem)
                    continue
                for message in some:  # which of them it was, each tells by itself
                    self.handle([message])
                continue
            finally:
                self.each += ((time.perf_counter() - before) / len(some) - self.each) / 8
            if self.stage.sink:  # at once: it would be called again for those that are not acknowledged
                self.consumer.ack(*some)
                continue
            done += some
            outputs += answers
        if done:
            self.commit(done, outputs)

    def _calls(self, messages: list[shmq.Message[Any]]) -> list[list[shmq.Message[Any]]]:
        """What the function is given together: items one by one, a batch but for those that are suspect."""
        self.tries.settle(messages)
        if self.stage.batch is None or len(messages) == 1:
            return [[message] for message in messages]
        suspect = [message for message in messages if self.tries.is_suspect(message)]
        others = [message for message in messages if message not in suspect]
        return [*([others] if others else []), *([message] for message in suspect)]

    def answers(self, messages: Sequence[shmq.Message[Any]]) -> list[list[Any]]:
        """
        What comes of each.

        Raises:
            Failed: the function has raised, or an item cannot be decoded; or it was tried too often.
        """
        stage = self.stage
        if len(messages) == 1 and messages[0].attempts > 1 and self.tries.of(messages[0]) >= stage.attempts:
            raise Failed(f"it was tried {stage.attempts} times, and its workers died")
        try:
            self.tries.begin(messages)
            payloads = [message.payload for message in messages]
            if stage.function is None:
                return [[payload] for payload in payloads]
            if stage.batch is None:
                return [outputs_of(stage.function(payload)) for payload in payloads]
            return self._of_batch(stage.function, payloads)
        except BaseException as problem:  # SystemExit, too, is what the item has come to, and not the worker's end
            raise Failed from problem
        finally:
            self.tries.end()

    def _of_batch(self, function: Callable[[Any], Any], payloads: list[Any]) -> list[list[Any]]:
        answer = function(payloads)
        if answer is None or self.stage.sink:
            return [[] for _ in payloads]
        each = [outputs_of(one) for one in answer]
        if len(each) != len(payloads):
            raise ValueError(
                f"stage {self.stage.name!r} was given {len(payloads)} items and answered {len(each)}: one answer for "
                "each is wanted, in their order; None for nothing, an iterator for several"
            )
        return each

    def commit(self, messages: Sequence[shmq.Message[Any]], outputs: Sequence[Sequence[Any]]) -> None:
        """Put what came of them, and finish them."""
        target: Any = self.target
        try:
            forward = messages[0].forward() if len(messages) == 1 else shmq.forward(*messages)
            with contextlib.ExitStack() as block:
                block.enter_context(self._interruptible(forward))
                for message, some in zip(messages, outputs, strict=True):
                    for output in some:
                        forward.put(target, output, message=message)
        except (shmq.Full, shmq.SyncPending) as problem:  # the items come again, as if they had not been tried
            for message in messages:  # refused before it was begun, it is still ours; else it comes by itself
                with contextlib.suppress(shmq.LeaseLost):
                    message.nack(_AGAIN)
            if isinstance(problem, shmq.DiskFull):
                self._wait_for_room(problem)
        except (shmq.LeaseLost, shmq.ShutDown, shmq.Closed, shmq.Forked, shmq.SyncFailed):
            raise
        except Exception as problem:  # noqa: BLE001  # of the codec, or too large: nothing was put
            if len(messages) == 1:
                with contextlib.suppress(shmq.LeaseLost):  # it was begun, and comes again by itself
                    self.fail(messages[0], problem)
                return
            for message, some in zip(messages, outputs, strict=True):
                self.commit([message], [some])

    @contextlib.contextmanager
    def _interruptible(self, forward: Any) -> Iterator[None]:
        """A forward whose end, which may wait for room in the next queue, is left when this worker is to leave."""
        forward.__enter__()
        yield
        self.life.wait(lambda: forward.__exit__(None, None, None))

    def _wait_for_room(self, problem: shmq.DiskFull) -> None:
        """The items come again by themselves; until there is room none need be tried."""
        _log.warning("stage %s waits for room on the disk: %s", self.stage.name, problem)
        until = time.monotonic() + _PATIENCE
        while not self.life.ending and time.monotonic() < until:
            time.sleep(_LOOK_AT_DISK)
            found = os.statvfs(self._place.path)
            if found.f_bavail * found.f_frsize >= _ROOM:
                return

    def fail(self, message: shmq.Message[Any], problem: BaseException) -> None:
        """Have it tried again, later; or no more."""
        attempts = self.stage.attempts
        reason = problem.__cause__ if isinstance(problem, Failed) and problem.__cause__ else problem
        tried = self.tries.note(message) if reason is not problem or not isinstance(problem, Failed) else attempts
        _log.warning(
            "stage %s, item %d, try %d of %d", self.stage.name, message.index, tried, attempts, exc_info=reason
        )
        try:
            if tried >= attempts:
                text = "".join(traceback.format_exception(reason))
                message.reject(text[-_REASON_MAX:])
            else:
                message.nack(min(self.stage.backoff * 2.0 ** (tried - 1), _BACKOFF_MAX))
        except shmq.DiskFull as full:
            self._wait_for_room(full)

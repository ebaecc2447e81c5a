"""
A worker of an ordered stage: it does items ahead, and commits each when all before it are finished.

Whose turn it is the group says: its floor is the first item that is not finished, also of those that wait for another
try. So it needs no state of its own, and whoever dies leaves none. A worker that has done as many ahead as it may still
takes items, slowly: what a dead worker held comes first then, and all others wait for that.
"""

from __future__ import annotations

import time
from typing import Any, Self

import shmq
from shmq.flow.bench import Bench, Failed
from shmq.flow.plan import AHEAD

_SHORT, _LONG = 0.0001, 0.005
"""Between two looks whether it is our turn; doubled each time, up to the longest."""
_STUCK = 0.05
"""Seconds after which to take one more than we may, for it may be the one that all wait for."""


class Ordered(Bench):
    """
    One worker, and what it has done ahead.

    Of an ordered sink nothing is done ahead: its function is called when it is an item's turn.
    """

    def __enter__(self) -> Self:
        """Open the queues."""
        super().__enter__()
        self._ahead: dict[int, tuple[shmq.Message[Any], list[Any] | None]] = {}
        self._pause = _SHORT
        self._moved = time.monotonic()
        return self

    def run(self) -> None:
        """Until the stage is drained, or this worker is to leave."""
        while not self.life.ending:
            self._commit_in_turn()
            if not self._ahead:
                try:
                    messages = self.take()
                except shmq.ShutDown:
                    self.pass_on_the_end()
                    return
                self._do(messages)
            elif not self._take_more():
                self.life.wait(lambda: time.sleep(self._pause))
                self._pause = min(self._pause * 2, _LONG)

    def share(self) -> int:
        """How many to take at once: those that follow each other are committed together."""
        return 1 if self.stage.sink else max(min(super().share(), AHEAD - len(self._ahead)), 1)

    def _take_more(self) -> bool:
        """Do one more, while others are before what was done; whether there was one."""
        if len(self._ahead) >= AHEAD:
            if time.monotonic() < self._moved + _STUCK:
                return False
            self._moved = time.monotonic()
        try:
            self._do(self.consumer.get_many(self.share(), timeout=0))
        except (shmq.Empty, shmq.ShutDown):  # the end is told of again when nothing is held
            return False
        return True

    def _do(self, messages: list[shmq.Message[Any]]) -> None:
        for message in messages:
            if self.stage.sink:
                self._ahead[message.index] = message, None
                continue
            before = time.perf_counter()
            try:
                (outputs,) = self.answers([message])
            except Failed as problem:
                self.fail(message, problem)
            else:
                self._ahead[message.index] = message, outputs
            self.each += (time.perf_counter() - before - self.each) / 8

    def _commit_in_turn(self) -> None:
        while self._ahead:
            first = min(self._ahead)
            # The head is read for nothing, and is never behind the floor.
            if self.consumer.head < first or self.consumer.floor < first:
                return
            messages, outputs = [], []
            while first in self._ahead:
                message, some = self._ahead.pop(first)
                first += 1
                if some is None:
                    self.handle([message])
                    break
                messages.append(message)
                outputs.append(some)
            if messages:
                self.commit(messages, outputs)
            self._pause = _SHORT
            self._moved = time.monotonic()

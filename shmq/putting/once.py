"""
A put with dedup: those who put as the same producer take turns, and each looks first whether that sequence was put.

storage/dedup.py is what remembers it; this is the side of the handle that puts.
"""

from __future__ import annotations

import contextlib

from shmq import _native, errors, given
from shmq.hints import TYPE_CHECKING
from shmq.storage import dedup
from shmq.storage.paths import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory


class Once:
    """What one handle knows of the puts with dedup in its queue."""

    def __init__(self, home: Directory, control: _native.Control, chain: Chain) -> None:
        """Nothing is known yet."""
        self.home = home
        self.control = control
        self._chain = chain
        self.known = dedup.Known(home, chain)
        self._turns: _native.Lock | None = None

    def begin(self) -> None:
        """Have the queue know that there are puts with dedup, so that what retires a chunk notes what is in it."""
        dedup.begin(self.home)

    def built_in(self, name: bytes) -> _native.Once:
        """For the built-in, what is to be known of that producer's puts."""
        if self._turns is None:
            fd, _ = self.home.open(self.home.fd, CONTROL, writable=True)
            with fd:
                self._turns = _native.Lock(fd)
        return _native.Once(dedup.identity(name), dedup.turn_byte(name), self._turns)

    def forget_built_in(self) -> None:
        """Hold no lock for it any more."""
        if self._turns is not None:
            self._turns.free()
            self._turns = None

    def note(self) -> None:
        """Now and then, so that the next process has not far to walk. What fails here is no error of the put."""
        before = self.known.worth_noting()
        if before:
            with contextlib.suppress(errors.ShmqError, OSError), self.home.admin(timeout=0):
                if dedup.note(self.home, self._chain, before):
                    self.known.noted(before)


class DedupPut:
    """
    One put with dedup.

    Attributes:
        field: what its records say, as the core takes it.
    """

    def __init__(self, once: Once, offered: tuple[str | bytes, int]) -> None:
        """
        Of the handle that knows *once*.

        Raises:
            ValueError, TypeError: that is no (producer, sequence).
        """
        self._once = once
        self._name, self._sequence = given.dedup(offered)
        self._given = offered[0]
        self.field = dedup.field(self._name, self._sequence)

    def put_at(self, chunk: _native.Chunk, first: int) -> tuple[str | bytes, _native.Once]:
        """
        It was put in that chunk, as the last one of its producer, whose turn it still is: what the built-in goes by.

        That begins to look where was looked before it was put, or where the chunk begins.
        """
        stands = self._once.known.stands()
        if stands is None or stands[0] != chunk.sequence:
            stands = chunk.sequence, chunk.first_position(), 0
        once = self._once.built_in(self._name)
        once.stands(*stands, (self._sequence, first))
        return self._given, once

    def put(self, deadline_ns: int, attempt: Callable[[], int]) -> int | range:
        """Alone: where it was put before; else what *attempt* answers, which puts it, or says what to wait for."""
        home = self._once.home
        with dedup.alone(home, self._once.control, self._name, deadline_ns, "put into"):
            before = self._once.known.find(self._name, self._sequence, f"put into {home.path}")
            return attempt() if before is None else before

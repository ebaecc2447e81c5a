"""
What is held back in a queue for one that follows it: by a consumer name, which stands also while nobody replicates.

Where what all names have finished is retired, this one finishes nothing before the others: else a queue whose
consumers are still to come would lose what only the follower has.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

from shmq import _native, errors
from shmq.storage import floors
from shmq.storage.paths import FOLLOWERS, chunk_name

if TYPE_CHECKING:
    from shmq.queue import Queue
    from shmq.session import Session

PREFIX = FOLLOWERS
"""Of the names that hold back what a follower lacks."""
_ACK_NS = 200_000_000
"""How often to write down how far the follower is."""


class Hold:
    """The name of one follower, held."""

    def __init__(self, session: Session, queue: Queue[Any], name: str, keep: int | None) -> None:
        """
        Take it; make it if there is none, at the beginning of the queue. At most *keep* bytes are held back.

        Raises:
            Busy: another one sends to a follower of that name.
        """
        self._name, self._keep = name, keep
        self._session, self._queue = session, queue
        self._home = session.home
        self._is_new = not self._home.has_consumer(f"{PREFIX}{name}")
        self._consumer = queue.consumer(f"{PREFIX}{name}", hold=True)
        self._moved_ns = 0

    def close(self, acknowledged: int, *, given_up: bool) -> None:
        """Let go of it, and have it stand there. One that was made for what came to nothing goes."""
        with contextlib.suppress(errors.ShmqError, OSError, IndexError):
            self._move(acknowledged)
        self._consumer.close()
        if self._is_new and given_up:
            with contextlib.suppress(errors.ShmqError, OSError):
                self._queue.drop_consumer(f"{PREFIX}{self._name}")

    def _is_bounded(self) -> bool:
        """Whether producers may wait for what all names have finished, this one among them."""
        return bool(self._home.options.max_messages or self._home.options.max_bytes)

    def keeps_waiting(self, acknowledged: int) -> bool:
        """Whether producers may wait for this name, which waits for others."""
        return self._is_bounded() and self._consumer.head < acknowledged

    def tend(self, acknowledged: int) -> None:
        """
        Now and then: have what is before that index go.

        Raises:
            Gone: more would be held back than is to be; the name is given up.
        """
        if self._is_bounded() or _native.monotonic_ns() - self._moved_ns >= _ACK_NS:
            self._move(acknowledged)
            self._refuse_too_much(acknowledged)

    def _move(self, acknowledged: int) -> None:
        self._moved_ns = _native.monotonic_ns()
        index = self._not_needed(min(acknowledged, self._session.next_index))
        if index > self._consumer.head:
            self._consumer.seek(index)

    def _not_needed(self, index: int) -> int:
        """Before which index nothing is held back: *index*, or where the others stand."""
        if self._home.options.retention.kind != "acked":
            return index
        with contextlib.suppress(errors.Busy), self._home.admin(timeout=0):
            joined = self._session.joined()
            names = floors.Names(self._home, joined.member)
            names.look(locked=True)
            found = names.floors(joined.control.bounds().dropped)
            others = [floor for name, floor in found.items() if not name.startswith(PREFIX)]
            return min([index, *others]) if others else self._consumer.head
        return self._consumer.head

    def _refuse_too_much(self, acknowledged: int) -> None:
        if self._keep is None or self._behind(acknowledged) <= self._keep:
            return
        self._consumer.close()
        self._queue.drop_consumer(f"{PREFIX}{self._name}")
        raise errors.Gone(
            f"cannot replicate {self._home.path} to {self._name}: it lacks more than the {self._keep:,} bytes that "
            "are kept for it, and its place was given up; move the follower away and begin anew, which a reset does",
            self._session.first_index,
        )

    def _behind(self, acknowledged: int) -> int:
        """Bytes of the chunks that are held back for it, but for the last one."""
        names = self._session.chain().names()
        kept = [name for name, after in itertools.pairwise(names) if after[1] > acknowledged]
        return sum(os.stat(chunk_name(base, seq), dir_fd=self._home.chunks).st_size for seq, base in kept)

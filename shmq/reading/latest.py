"""
The newest message of each key, from an index that is kept on the way.

A process walks what was put since it looked last, and notes the last index of each key; the first look walks all there
is, at some millions of messages a second. Nothing of it is stored: the records say it.
"""

from __future__ import annotations

import os

from shmq import errors, locks
from shmq.hints import TYPE_CHECKING
from shmq.reading.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmq._native import Message
    from shmq.reading.access import Access
    from shmq.session import Session

MOST = 1_000_000
"""Keys that a process knows at most: some 150 bytes each."""


class Latest:
    """What this process knows. Safe to share between threads."""

    def __init__(self, session: Session) -> None:
        """Nothing is known yet."""
        self._session = session
        self._lock = locks.Lock()
        self._known: dict[bytes, int] = {}
        self._upto = 0  # all before it is in there
        self._reader: Reader | None = None
        self._pid = 0  # whose reader that is

    def of(self, key: bytes) -> Message | None:
        """As `Queue.latest`."""
        with self._lock:
            access = self._session.access()
            end = access.next_index()
            if end > self._upto:
                self._walk_on(access)
            # What is claimed and not committed yet may be followed by what is.
            found = _first_of(key, access.backward(self._upto, end, skip_corrupt=True))
            return self._known_of(access, key) if found is None else found

    def _walk_on(self, access: Access) -> None:
        """Note what was put since, up to what is claimed and not committed yet."""
        reader = self._reader
        if reader is None or self._pid != os.getpid():
            reader = Reader(self._session, self._upto, None, reverse=False, follow=False, skip_corrupt=True)
        self._reader = None  # what is interrupted is walked again
        while not self._note(reader, access):
            pass
        self._reader, self._pid = reader, os.getpid()

    def _note(self, reader: Reader, access: Access) -> bool:
        """Note what it reads; False when some of it was retired on the way, and it goes on behind that."""
        known, most = self._known, MOST
        index = -1
        try:
            for message in reader:
                key, index = message.key, message.index
                if key is not None:
                    known[key] = index
                    if len(known) > most:
                        self._forget_retired(access)
        except errors.Gone:
            return False
        self._upto = max(self._upto, index + 1)
        return True

    def close(self) -> None:
        """Hold nothing of the queue any more."""
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None and self._pid == os.getpid():
            reader.close()

    def _forget_retired(self, access: Access) -> None:
        """
        Make room for other keys.

        Raises:
            TooMany: there is none.
        """
        first = access.first_index()
        for key in [key for key, index in self._known.items() if index < first]:
            del self._known[key]
        if len(self._known) > MOST:
            raise errors.TooMany(
                f"cannot look for the latest message of a key of {self._session.path}: it has more than {MOST:,} keys; "
                "nothing was changed"
            )

    def _known_of(self, access: Access, key: bytes) -> Message | None:
        index = self._known.get(key)
        if index is None:
            return None
        try:
            message: Message | None = access.message(index)
        except (IndexError, errors.Corrupt):  # retired, or damaged since
            message = None
        if message is not None and not message.expired:
            return message
        # What is there before it, if anything, is the latest from now on: what has expired or gone stays so.
        message = _first_of(key, access.backward(access.first_index(), index, skip_corrupt=True))
        if message is None:
            del self._known[key]
        else:
            self._known[key] = message.index
        return message


def _first_of(key: bytes, messages: Iterable[Message]) -> Message | None:
    return next((message for message in messages if message.key == key and not message.expired), None)

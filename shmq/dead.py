"""
Moving a message to another queue: dead letters, and what expired.

The word of the message says MOVING from before the put until after it, so whoever finds it there after a death repeats
the move. A dead letter is put with its origin as dedup id, so a repeated move finds the first copy, also one that was
finished and retired. What expired may be millions, which nobody remembers for ever: there a repeated move looks for the
copy.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.options import Options, Retention
from shmq.producer import Producer

if TYPE_CHECKING:
    from shmq.message import Message
    from shmq.queue import Queue

GROUP = "operator"
"""In a dead-letter queue, the group by which its letters are finished."""
_TEXT_MAX = 8192


class _Raw(Producer):
    """Puts payloads as they are, encoded already."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self._encode = None
        self._code_with(None)


def path_of(queue: Queue, given: str | None, group: str) -> str:
    """Where a group's letters go: beside the queue, unless the path is absolute."""
    if given is None:
        return f"{queue.path}.{group}.dead"
    return os.path.join(os.path.dirname(queue.path), given)


def why(reason: object) -> tuple[str, str]:
    """A reason in words, and the traceback of the exception it is, or that is being handled."""
    problem = reason if isinstance(reason, BaseException) else sys.exc_info()[1]
    text = "".join(traceback.format_exception(problem)) if problem is not None else ""
    words = f"{type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else str(reason or "")
    if not words and problem is not None:
        words = f"{type(problem).__name__}: {problem}"
    return words[:_TEXT_MAX], text[-_TEXT_MAX:]


def letter_id(source_id: str, index: int, group: str) -> str:
    """Whose put a letter is: of nobody else, for no index is given twice."""
    return f"shmq.letter/{source_id}/{index}/{group}"


class Mover:
    """The way from one group to one other queue."""

    def __init__(self, source: Queue, target: str, group: str, *, letters: bool) -> None:
        """Open the target; make it if there is none. *letters*: keep everything until an operator has finished it."""
        from shmq.queue import Queue as _Queue  # noqa: PLC0415  # it knows this module

        made = Options(codec=source.options.codec, retention=Retention.acked())
        self._source_id = source._home.queue_id.hex()  # noqa: SLF001
        self._epoch = source._home.journal.epoch  # noqa: SLF001
        self._group = group
        self._source = source
        self._letters = letters
        self._queue = _Queue(target, options=None if os.path.exists(target) else made, trusted=True)
        if self._queue._home.queue_id == source._home.queue_id:  # noqa: SLF001
            self._queue.close()
            raise errors.Mismatch(f"group {group!r} of {source.path} cannot move messages into its own queue")
        if letters:
            self._queue.consumer(GROUP, group=True, ack="explicit").close()
        self._producer = _Raw(self._queue)

    def put(self, message: Message, cause: str, reason: str, text: str, *, again: bool) -> int:
        """Copy *message* there, once: the copy's index. *again*: somebody may have done so."""
        origin = [self._source_id, self._epoch, message.index, self._group, cause]
        known = self._find(origin) if again and not self._letters else None
        if known is not None:
            return known
        headers: dict[str, Any] = {
            **message.headers,
            "shmq.origin": origin,
            "shmq.queue": self._source.path,
            "shmq.index": message.index,
            "shmq.group": self._group,
            "shmq.cause": cause,
            "shmq.reason": reason,
            "shmq.attempts": message.attempts,
            "shmq.traceback": text,
        }
        return self._producer.put(
            bytes(message.view),
            key=message.key,
            type=message.type,
            time_ns=message.time_ns,
            headers=headers,
            dedup=(letter_id(self._source_id, message.index, self._group), 1) if self._letters else None,
        )

    def has(self, message: Message) -> bool:
        """Whether there is, or was, a letter of that message."""
        return self._queue.adopted(letter_id(self._source_id, message.index, self._group)) is not None

    def _find(self, origin: list[Any]) -> int | None:
        for known in self._queue.reader(reverse=True):
            if known.headers.get("shmq.origin") == origin:
                return known.index
        return None

    def close(self) -> None:
        """Let go of the target."""
        self._producer.close()
        self._queue.close()

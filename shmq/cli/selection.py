"""Which messages a verb that reads shows: from where to where, and of those only the ones that match."""

from __future__ import annotations

import argparse
import itertools
import os
import re
from typing import TYPE_CHECKING

from shmq.cli import show, whence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import shmq


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    which = verb.add_argument_group("which messages; all that is given must hold")
    which.add_argument("--from", dest="start", metavar="PLACE", help=f"the first: {whence.WORDS}")
    which.add_argument("--to", dest="stop", metavar="PLACE", help="the one before which to end, likewise")
    which.add_argument("--key", type=os.fsencode, help="of this key")
    which.add_argument("--grep", type=_pattern, metavar="REGEX", help="whose payload, as its bytes are, has a match")
    show.add_filter(verb)


def _pattern(word: str) -> re.Pattern[bytes]:
    try:
        return re.compile(os.fsencode(word))
    except re.error as problem:
        raise argparse.ArgumentTypeError(f"{word!r} is not a regular expression: {problem}") from None


class Selection:
    """What was asked for of one queue."""

    def __init__(self, queue: shmq.Queue, arguments: argparse.Namespace) -> None:
        """
        Look where it begins and ends.

        Raises:
            Misuse: it asks for what no message can have.
        """
        self._queue = queue
        self._key: bytes | None = arguments.key
        self._pattern: re.Pattern[bytes] | None = arguments.grep
        self._filter = show.wanted(arguments)
        self.start = None if arguments.start is None else whence.index_at(queue, "--from", arguments.start)
        self.stop = None if arguments.stop is None else whence.index_at(queue, "--to", arguments.stop)
        self.is_all = self._filter is None and self._key is None and self._pattern is None
        """Whether every message matches."""

    def messages(self, *, start: int | None = None, follow: bool = False) -> Iterator[shmq.Message]:
        """Those that match, in order; with *follow* also those that come."""
        begin = self.start or 0 if start is None else start
        return self._matching(self._queue.reader(begin, self.stop, follow=follow, filter=self._filter))

    def last(self, count: int) -> int:
        """The index of the first of the last *count* that match."""
        end = self._queue.next_index if self.stop is None else self.stop
        begin = self.start or 0
        if self.is_all:
            return max(end - count, begin)
        found = end
        backward = self._queue.reader(begin, end, reverse=True, filter=self._filter)
        for message in itertools.islice(self._matching(backward), count):
            found = message.index
        return found

    def _matching(self, messages: Iterable[shmq.Message]) -> Iterator[shmq.Message]:
        if self._key is None and self._pattern is None:
            yield from messages
            return
        for message in messages:
            is_key = self._key is None or message.key == self._key
            if is_key and (self._pattern is None or self._pattern.search(message.view)):
                yield message

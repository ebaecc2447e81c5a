"""
What a group has forwarded into a queue: looked for by whoever forwards a message that somebody may have put before.

The records themselves say so, as with dedup.py; what was retired is in its note. Nothing is locked. Whoever looks has
the message, so nobody else puts what comes of it; and who had it before is dead, or has ended its try. So a claim that
is open is a dead one's, which is padded before it is passed, or belongs to another message, and is looked at again.
"""

from __future__ import annotations

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import dedup, forgotten

if TYPE_CHECKING:
    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

Copies = dict[int, tuple[int, int]]
"""By the index of a message there: the first index of what comes of it here, and how many."""

_MANY = 1 << 16
"""From twice as many on, what is done for good is forgotten."""


class Forwarded:
    """What one source has put here, as far as one process has looked. For one thread at a time."""

    def __init__(self, home: Directory, chain: Chain, incarnation: bytes) -> None:
        """Nothing is known yet."""
        self._home = home
        self._chain = chain
        self._source = incarnation
        self._scan = _native.DedupScan(_native.DEDUP_SOURCE, incarnation)
        self._kept = _MANY
        self._forget()

    def _forget(self) -> None:
        self._chunk: _native.Chunk | None = None
        self._place = [0, 0]
        self._open: list[dedup.Claim] = []
        self._copies: Copies = {}

    def look(self) -> Copies:
        """
        All that is there now.

        Raises:
            Corrupt: a note or a chunk is damaged.
        """
        while True:
            try:
                self._walk_on()
            except (errors.Gone, FileNotFoundError):  # retired meanwhile, and noted before that
                self._forget()
            else:
                if len(self._copies) > 2 * self._kept:
                    self._drop_done()
                return self._copies

    def _drop_done(self) -> None:
        floor = forgotten.floors(self._home).get(self._source)
        if floor is not None:
            self._copies = {index: copy for index, copy in self._copies.items() if not floor.is_done(index)}
        self._kept = max(len(self._copies), _MANY)

    def _walk_on(self) -> None:
        if self._chunk is None:
            self._begin()
        opened, self._open = self._open, []
        for claim in opened:
            self._enter(claim.chunk, [claim.position, claim.ordinal], claim.end)
        while self._chunk is not None:
            self._enter(self._chunk, self._place)
            ended = int(self._scan.code[0]) == _native.ROLL
            following = self._chain.after(self._chunk) if ended else None
            if following is None:
                return
            self._chunk, self._place = following, [0, 0]

    def _begin(self) -> None:
        note = dedup.read_note(self._home)
        noted = 0 if note is None else note.sequence
        self._copies = {} if note is None else note.forwarded(self._source)
        live = [name for name in self._chain.names() if name[0] >= noted]
        if live:
            self._chunk, self._place = self._chain.open(*live[0]), [0, 0]

    def _enter(self, chunk: _native.Chunk, place: list[int], until: int = 0) -> None:
        for _, (sequence, first, count) in dedup.walk(chunk, self._scan, place, self._open, until):
            self._copies.setdefault(sequence & ~_native.DEDUP_FORWARDED, (first, count))

"""
What a queue need not remember of what was forwarded into it: of each source, how far it is done for good.

A source says so when a snapshot of what it has done is on its disk: below *floor* all is done and never comes again,
but for the *runs* of indexes that the snapshot leaves open. So what was forwarded of the others is looked for by nobody
any more. Who forgets too little, since this file was lost, is wrong about nothing.
"""

from __future__ import annotations

import bisect
import contextlib
import struct
import time

from shmq import errors
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import records
from shmq.storage.paths import FORWARDED, FORWARDED_NEW

if TYPE_CHECKING:
    from shmq.storage.directory import Directory

SOURCES = 1024
"""How many sources a queue knows of."""
SILENCE = 30 * 86400
"""Seconds after which a source that said nothing is taken for one that is gone; there the promise ends."""
_RUN = struct.Struct("<QQ")


class Floor(NamedTuple):
    """
    How far a source is done.

    Attributes:
        below: before it all is done, but for the runs.
        runs: begin and end of each, ascending, 8 bytes each.
        heard: when it said so, in seconds since 1970.
    """

    below: int
    runs: bytes
    heard: int

    def is_done(self, index: int) -> bool:
        """Whether a message there never comes again."""
        if index >= self.below:
            return False
        count = len(self.runs) // _RUN.size
        at = bisect.bisect_right(range(count), index, key=lambda run: _RUN.unpack_from(self.runs, run * _RUN.size)[0])
        return at == 0 or index >= _RUN.unpack_from(self.runs, (at - 1) * _RUN.size)[1]

    def is_silent(self) -> bool:
        """Whether it said nothing for so long that it is taken for gone."""
        return self.heard < time.time() - SILENCE


Floors = dict[bytes, Floor]
"""By the incarnations of the sources."""


def floors(home: Directory) -> Floors:
    """How far each source is done, as it has said; of none, where that is lost."""
    with contextlib.suppress(FileNotFoundError, errors.Corrupt):
        found = records.read_record(home, home.fd, FORWARDED, home.path)
        return {source: Floor(*floor) for source, floor in found.items()}
    return {}


def hand_over(home: Directory, source: bytes, index: int, runs: bytes) -> None:
    """
    Note how far that source is done, on the disk.

    Raises:
        Busy: somebody administers the queue just now.
    """
    now = int(time.time())
    with home.admin(timeout=0):
        known = floors(home)
        before = known.get(source)
        if before is not None and before.below > index:
            return  # somebody else, of a later snapshot
        known[source] = Floor(index, runs, now)
        kept = sorted(known.items(), key=lambda item: item[1].heard)[-SOURCES:]
        content = {who: list(floor) for who, floor in kept}
        records.replace_record(home, FORWARDED, FORWARDED_NEW, content, "forwarded")

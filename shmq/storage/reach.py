"""
How far a queue is known to have gone, by what says so beside its chunks: what is missing is told from what never was.

In the boot in which it was last open the control page knows which chunk must be there; the watermark outlives that
boot. How many messages a missing chunk had is known only as far as something points behind them: the watermark, what
this boot has synced, the heads of consumers, and the hint in the header of a chunk that is damaged.
"""

from __future__ import annotations

import contextlib
import os

from shmq import _native, errors
from shmq._native import layout
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import watermark
from shmq.storage.paths import CONTROL

if TYPE_CHECKING:
    from shmq.storage.directory import Directory


class Reach(NamedTuple):
    """What is known of the end of a queue. To be asked for before its chunks are listed: they may grow meanwhile."""

    newest: int
    """The sequence of the last chunk that must be there, unless it was retired; -1 when none must."""
    end: int
    """Something was put before this index, where a chunk is missing that could have had it."""
    mark: _native.Watermark | None


NOWHERE = Reach(-1, 0, None)


def control_page(home: Directory) -> _native.Control | None:
    """The control page, to be looked at; None where it cannot be believed."""
    with contextlib.suppress(OSError, errors.ShmqError):
        fd, size = home.open(home.fd, CONTROL, writable=False)
        with fd:
            return _native.Control(fd, size, home.queue_id, CONTROL, writable=False)
    return None


def reach(home: Directory) -> Reach:
    """What is known now."""
    mark = watermark.read(home)
    newest, end = -1, 0 if mark is None else mark.next_index
    if not home.unclean():  # else the page and the heads may be ahead of what the disk has got
        control = control_page(home)
        if control is not None:
            newest, end = control.newest(), max(end, control.durable())
        for name in home.consumer_names():
            with contextlib.suppress(OSError, errors.ShmqError):
                end = max(end, home.checkpoint(name).head)
    return Reach(newest, end, mark)


def ordinals_max(home: Directory, size: int = 0) -> int:
    """No more ordinals than this are in a chunk of that queue, which has *size* bytes if that is known."""
    return max(size, home.options.chunk_bytes) // _native.RECORD_BYTES_MIN


def behind(home: Directory, known: Reach, sequence: int, end: int) -> tuple[str, int]:
    """
    What is missing behind the last chunk that is there, of that sequence, whose messages end before index *end*: what
    is wrong, and how many messages are known to have been there.
    """
    marked = known.mark is not None and known.mark.next_index > end and known.mark.chunk_sequence > sequence
    last = max(known.newest, known.mark.chunk_sequence if known.mark is not None and marked else -1)
    if last <= sequence:
        return "", 0
    most = (last - sequence) * ordinals_max(home)
    return f"chunk {last} is missing, where the queue ends", min(max(known.end - end, 0), most)


def known_end(home: Directory, chunk: _native.DetachedChunk, sequence: int, known: Reach) -> int:
    """The ordinal up to which something was put into a chunk, as its hint or the watermark knows; 0 if neither does."""
    ordinal = 0
    if not home.unclean():  # else the hint may be newer than what it speaks of
        position, hinted = chunk.hint()
        ordinal = hinted if position > chunk.first_position() else 0
    return min(max(ordinal, _marked(known, sequence, chunk.base)), chunk.size // _native.RECORD_BYTES_MIN)


def known_in_damaged(home: Directory, folder: int, name: str, sequence: int, base: int, known: Reach) -> int:
    """As `known_end`, of a chunk that cannot be opened and has none behind it."""
    ordinal, size = max(_marked(known, sequence, base), known.end - base), 0
    if not home.unclean():
        with contextlib.suppress(OSError, errors.ShmqError):
            fd, size = home.open(folder, name, writable=False)
            with fd:
                hint = int.from_bytes(os.pread(fd, 8, layout.chunk_header.hint), "little")
                hinted = hint & ((1 << layout.HINT_ORDINAL_BITS) - 1)
                ordinal = max(ordinal, hinted if hinted <= ordinals_max(home, size) else 0)
    return min(max(ordinal, 0), ordinals_max(home, size))


def _marked(known: Reach, sequence: int, base: int) -> int:
    mark = known.mark
    return mark.next_index - base if mark is not None and mark.chunk_sequence == sequence else 0

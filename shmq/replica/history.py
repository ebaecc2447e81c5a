"""
Whether two queues have one history: that of the follower is where that of the other one begins.

Chunks have random ids, so the same chunks at the same places are the same history up to the last of them, where both
may have gone on; there the words and checksums of all messages are compared. An epoch says nothing: one that was
promoted and one that was recovered begin the same one.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, NamedTuple

from shmq import _native, errors
from shmq._native import layout
from shmq.storage.paths import CHUNKS, chunk_name
from shmq.storage.recover.plan import End
from shmq.storage.stretches import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.replica.pieces import Answer
    from shmq.storage.directory import Directory

_WORD = 8
_SUM = 4
_SUMS_MAX = 1 << 24
"""Behind so many regions of a chunk nothing is known to be common."""
_CRC_END = layout.record.ordinal
_FLAGS = layout.record.flags
_KIND = layout.gap.kind


class Part(NamedTuple):
    """A region of a chunk, and where of it ends what never changes."""

    position: int
    kept: int
    end: int
    state: int


def parts(content: bytes, position: int) -> Iterator[Part]:
    """
    The regions of a chunk from *position* on. What never changes of one: of a message its word, length and checksum,
    or all of it where it has none; a gap; else the word, for what stands behind that may still be written.
    """
    while position + _WORD <= len(content):
        word = int.from_bytes(content[position : position + _WORD], "little")
        state, span = word >> 61, (word & 0x7FFFFFF) * 8
        kept = position + _WORD
        if state == layout.WORD_DONE:
            flags = int.from_bytes(content[position + _FLAGS : position + _FLAGS + 2], "little")
            kept = position + (span if flags & layout.RECORD_UNCHECKED else _CRC_END)
        elif state == layout.WORD_META and content[position + _KIND] == layout.META_GAP:
            kept = position + span
        yield Part(position, kept, position + span, state)
        if state == layout.WORD_SEAL or not span:
            return
        position += span


def digest(content: bytes, position: int) -> int:
    """CRC-32C over what never changes of a chunk from *position* on."""
    return _native.crc32c(b"".join(content[part.position : part.kept] for part in parts(content, position)))


def sums_of(home: Directory, sequence: int, base: int) -> bytes:
    """A checksum of what never changes of each region of that chunk."""
    with opened(home, CHUNKS, chunk_name(base, sequence), sequence, base) as chunk:
        content = chunk.content(0, chunk.size)
        there = itertools.islice(parts(content, chunk.first_position()), _SUMS_MAX)
        return b"".join(_sum(content, part) for part in there)


def _sum(content: bytes, part: Part) -> bytes:
    return _native.crc32c(content[part.position : part.kept]).to_bytes(_SUM, "little")


def same_until(home: Directory, sequence: int, base: int, sums: bytes) -> End:
    """Behind the last message of that chunk before which all is as in the one with those sums."""
    with opened(home, CHUNKS, chunk_name(base, sequence), sequence, base) as chunk:
        content = chunk.content(0, chunk.size)
        position, ordinal, messages = chunk.first_position(), 0, 0
        for number, part in enumerate(parts(content, position)):
            if _sum(content, part) != sums[number * _SUM : (number + 1) * _SUM]:
                break
            if part.state == layout.WORD_DONE:
                at = part.position + layout.record.ordinal
                messages += 1
                position, ordinal = part.end, int.from_bytes(content[at : at + 4], "little") + 1
        return End(sequence, position, base + ordinal, messages)


def digest_of(home: Directory, sequence: int, base: int, position: int) -> int:
    """The digest of that chunk up to before *position*."""
    with opened(home, CHUNKS, chunk_name(base, sequence), sequence, base) as chunk:
        return digest(chunk.content(0, position), chunk.first_position())


def ids(home: Directory, first_live: int) -> list[tuple[int, int, int]]:
    """(sequence, base, id) of the chunks from that sequence on."""
    found = []
    for sequence, base in home.chunk_names():
        if sequence >= first_live:
            with contextlib.suppress(FileNotFoundError):  # retired meanwhile
                content = home.read(home.chunks, chunk_name(base, sequence), _native.PAGE_BYTES)
                at = layout.chunk_header.chunk_id
                found.append((sequence, base, int.from_bytes(content[at : at + 8], "little")))
    return found


def last_common(home: Directory, first_live: int, answer: Answer) -> tuple[int, int] | None:
    """(sequence, base) of the last chunk up to which both have the same ones; None where they have none."""
    here = {sequence: (base, chunk_id) for sequence, base, chunk_id in ids(home, first_live)}
    last = None
    for sequence, base, chunk_id in answer.chain:
        if sequence >= first_live:
            if here.get(sequence) != (base, chunk_id):
                break
            last = sequence, base
    return last


def compare(home: Directory, first_live: int, answer: Answer) -> None:
    """
    Refuse a follower whose history is not the beginning of ours.

    Raises:
        Mismatch: it has something else, or more than there is here; or it is fenced, and may have.
        Gone: what comes behind what it has was retired here.
    """
    if answer.fenced:
        raise _differ(home, "what is fenced may have been put into after this one was promoted")
    if not answer.chain:
        return
    here = {sequence: (base, chunk_id) for sequence, base, chunk_id in ids(home, first_live)}
    last, last_base, _ = answer.chain[-1]
    for sequence, base, chunk_id in answer.chain:
        if sequence >= first_live and here.get(sequence) != (base, chunk_id):
            raise _differ(home, f"chunk {sequence} is another one" if sequence in here else f"has no chunk {sequence}")
    if last < first_live:
        raise errors.Gone(
            f"cannot replicate {home.path}: what the follower lacks, from chunk {last + 1} on, was retired here; "
            "move the follower away and begin anew, which a reset does",
            home.journal.first_index,
        )
    with contextlib.suppress(errors.Corrupt):
        if digest_of(home, last, last_base, answer.position) == answer.digest:
            return
    raise _differ(home, f"their messages in chunk {last} differ")


def _differ(home: Directory, how: str) -> errors.Mismatch:
    return errors.Mismatch(
        f"cannot replicate {home.path}: it and the follower have no common history: {how}. Nothing was changed; the "
        "follower has messages that are not here, or is of another time of this queue. A reset sets them aside"
    )

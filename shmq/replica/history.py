"""
Whether two queues have one history: that of the follower is where that of the other one begins.

Chunks have random ids, so the same chunks at the same places are the same history up to the last of them, where both
may have gone on; there the words and checksums of all messages are compared. An epoch says nothing: one that was
promoted and one that was recovered begin the same one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq._native import layout
from shmq.storage.paths import CHUNKS, chunk_name
from shmq.storage.stretches import opened

if TYPE_CHECKING:
    from shmq.replica.pieces import Answer
    from shmq.storage.directory import Directory

_WORD = 8
_CRC_END = layout.record.ordinal
_FLAGS = layout.record.flags
_KIND = layout.gap.kind


def digest(content: bytes, position: int) -> int:
    """
    CRC-32C over what never changes of a chunk from *position* on: of a message its word, length and checksum, or all of
    it where it has none; a gap; and the other words, for what stands behind those may still be written.
    """
    kept = []
    while position + _WORD <= len(content):
        word = int.from_bytes(content[position : position + _WORD], "little")
        state, span = word >> 61, (word & 0x7FFFFFF) * 8
        end = position + _WORD
        if state == layout.WORD_DONE:
            flags = int.from_bytes(content[position + _FLAGS : position + _FLAGS + 2], "little")
            end = position + (span if flags & layout.RECORD_UNCHECKED else _CRC_END)
        elif state == layout.WORD_META and content[position + _KIND] == layout.META_GAP:
            end = position + span
        kept.append(content[position:end])
        if state == layout.WORD_SEAL or not span:
            break
        position += span
    return _native.crc32c(b"".join(kept))


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


def compare(home: Directory, first_live: int, answer: Answer) -> None:
    """
    Refuse a follower whose history is not the beginning of ours.

    Raises:
        Mismatch: it has something else, or more than there is here.
        Gone: what comes behind what it has was retired here.
    """
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
            "remove the follower and begin anew",
            home.journal.first_index,
        )
    with contextlib.suppress(errors.Corrupt):
        if digest_of(home, last, last_base, answer.position) == answer.digest:
            return
    raise _differ(home, f"their messages in chunk {last} differ")


def _differ(home: Directory, how: str) -> errors.Mismatch:
    return errors.Mismatch(
        f"cannot replicate {home.path}: it and the follower have no common history: {how}. Nothing was changed; the "
        "follower has messages that are not here, or is of another time of this queue"
    )

"""What is found by whoever goes over all of a chunk: how far it is whole, what is damaged, puts with dedup."""

from __future__ import annotations

import struct

from shmq._core import ffi, lib
from shmq._native.core import story
from shmq.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class Resolved(NamedTuple):
    """What lies before *position*, of index *next_index*, is settled. *code*: EMPTY, ROLL, or WAITING for *owner*."""

    code: int
    position: int
    next_index: int
    owner: int


SCAN_LIMIT = 256
DEDUP_ALL, DEDUP_PUT, DEDUP_NEWEST = lib.SHMQ_DEDUP_ALL, lib.SHMQ_DEDUP_PUT, lib.SHMQ_DEDUP_NEWEST
DEDUP_SOURCE = lib.SHMQ_DEDUP_SOURCE
_FOUND = struct.Struct("<16sQQQQII")


class DedupScan:
    """Where a scan for puts with dedup leaves what it found."""

    def __init__(self, wanted: int, source: bytes | None = None) -> None:
        """Nothing. *wanted*: a DEDUP_ number; the *source* for DEDUP_SOURCE."""
        self.wanted = wanted
        self.source = ffi.NULL if source is None else ffi.new("uint8_t[16]", source)
        self.found = ffi.new("shmq_dedup_found[]", SCAN_LIMIT)
        self.position, self.ordinal, self.code = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("int *")
        self.count = self.base = 0

    def rows(self) -> Iterator[tuple[bytes, int, int, int, int, int, int]]:
        """(producer, sequence, position, first ordinal, 0, indexes, 0), or with an end instead of 0: an open claim."""
        return _FOUND.iter_unpack(ffi.buffer(self.found)[: self.count * _FOUND.size])


class Damage(NamedTuple):
    """From the first place that is in doubt, and its ordinal, to the one behind it from which to go on."""

    position: int
    ordinal: int
    end: int
    end_ordinal: int


def damage_of(damage: Any, find: Callable[[Any], int]) -> Damage | None:
    if find(damage) != lib.SHMQ_OK:
        return None
    return Damage._make(int(getattr(damage, name)) for name in Damage._fields)


class Survey(NamedTuple):
    """How far a chunk is whole. shmq.h, shmq_survey, says what each number is."""

    position: int
    ordinal: int
    stopped: int
    stopped_ordinal: int
    messages: int
    bytes: int
    padded: int
    open_padded: int
    claims: int
    gap_position: int
    gap_index: int
    adoption: int
    missing: int
    doubted: int
    code: int = 0
    """EMPTY, ROLL, WAITING or CORRUPT."""
    reason: str = ""
    """After CORRUPT: what is wrong."""


def survey_of(handle: Any, trusted: int, position: int, ordinal: int, *, pass_claims: bool, singly: bool) -> Survey:
    found = ffi.new("shmq_survey *", {"position": position, "ordinal": ordinal})
    code = lib.shmq_survey_chunk(handle, found, trusted, pass_claims, singly)
    numbers = [int(getattr(found, name)) for name in Survey._fields[:-2]]
    return Survey._make([*numbers, code, story() if code == lib.SHMQ_CORRUPT else ""])

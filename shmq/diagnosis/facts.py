"""
What a queue looks like at one moment, read without a change and without waiting for any lock.

Two such looks, half a second apart, tell what stands from what moves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from shmq import _native, errors, stats, whose
from shmq._native import holdings, layout
from shmq.storage import boots, marks, sources, subscriptions
from shmq.storage import ring as rings
from shmq.storage.paths import ADMIN, CONTROL, DEDUP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq._native.holdings import HeldMessage, OpenClaim
    from shmq.session import Session
    from shmq.whose import Process

_FLOCK = struct.Struct("hhqqi4x")
_OF_NAMES = (".group", ".hold", sources.ENDING, subscriptions.ENDING)
_CHUNKS = 8
"""Open claims are looked for in so many chunks at the end, and where each name stands."""


class Name(NamedTuple):
    """
    What one name is at.

    Attributes:
        stats: as `Queue.consumers` has it.
        open: whether somebody has it open.
        holder: who, of a name that one process has.
        held: of a group, and of explicit acknowledgements: who has which message.
        due_ns: when the first parked message is due, since boot.
    """

    stats: stats.ConsumerStats
    open: bool
    holder: Process | None
    held: list[HeldMessage]
    due_ns: int | None


class Look(NamedTuple):
    """One look. *used*: what the bounds count: indexes, and bytes; *locks*: of which somebody holds something."""

    at: float
    stats: stats.Stats
    names: dict[str, Name]
    claims: list[OpenClaim]
    people: list[Process]
    used: tuple[int, int]
    admin: bool
    dedup: bool
    durable: int
    leader: int
    sync_failed: bool
    room_waiters: bool
    followers: dict[str, int]
    """Before which index each has all, where puts wait for them."""
    refused: list[str]
    """Why files beside the chunks are not opened: what is no file of a queue, by its kind or by its rights."""


def look(session: Session) -> Look:
    """Look once."""
    joined = session.joined()
    found = stats.of_queue(session)
    page = joined.control.page
    return Look(
        at=time.monotonic(),
        stats=found,
        names={name: _name(session, name, each) for name, each in found.consumers.items()},
        claims=list(_claims(session, found)),
        people=_people(session),
        used=_used(session, found),
        admin=_locked(session, session.home.fd, ADMIN, 0, 1),
        dedup=_locked(session, session.home.fd, CONTROL, layout.LOCK_DEDUP, 1 << 40),
        durable=joined.control.durable(),
        leader=holdings.control_word(page, layout.control.sync_leader, 8),
        sync_failed=joined.control.sync_failed(),
        room_waiters=bool(holdings.control_word(page, layout.control.room_waiters, 4)),
        followers=marks.known(session.home),
        refused=list(_refused(session)),
    )


def who(session: Session, owner: int) -> Process | None:
    """The process that signs as that owner."""
    joined = session.joined()
    return whose.of_owner(joined.control, joined.member, owner)


def is_open(session: Session, name: str) -> bool:
    """Whether somebody has that name open."""
    return _locked(session, session.home.consumers, f"{name}.checkpoint", 0, 1)


def _people(session: Session) -> list[Process]:
    joined = session.joined()
    return list(whose.living(joined.control, joined.member).values())


def _name(session: Session, name: str, its: stats.ConsumerStats) -> Name:
    checkpoint = session.home.checkpoint(name)
    taken = is_open(session, name)
    holder = who(session, checkpoint.holder) if taken and checkpoint.holder and not its.shared else None
    held: list[HeldMessage] = []
    due_ns = None
    if checkpoint.ring and its.problem is None:
        with contextlib.suppress(errors.ShmqError, OSError):
            where = f"{session.path}/{name}.ring"
            with contextlib.closing(rings.map_ring(session.home, name, writable=False)) as memory:
                if _native.Ring.boot_id(memory, session.home.queue_id, where) == boots.boot_id():
                    held, due_ns = holdings.held_messages(memory, checkpoint.head), holdings.next_due(memory)
    return Name(its, taken, holder, held, due_ns)


def _claims(session: Session, found: stats.Stats) -> Iterator[OpenClaim]:
    chain = session.chain()
    live = chain.listed()
    heads = [each.head for each in found.consumers.values()]
    for at, (sequence, base) in enumerate(live):
        end = live[at + 1][1] if at + 1 < len(live) else found.next_index
        if at >= len(live) - _CHUNKS or any(base <= head <= end for head in heads):
            with contextlib.suppress(errors.ShmqError, FileNotFoundError):  # damaged, or retired: its readers are told
                yield from holdings.open_claims(chain.open(sequence, base))


def _used(session: Session, found: stats.Stats) -> tuple[int, int]:
    """How many indexes lie behind the lowest floor, and with a bound on bytes, how many bytes."""
    floors = [each.floor for each in found.consumers.values() if each.hold != "nothing"]
    floor = max(min(floors, default=session.joined().control.bounds().dropped), found.first_index)
    used = 0
    if found.max_bytes:
        chain = session.chain()
        for sequence, base in chain.listed():
            with contextlib.suppress(errors.ShmqError, FileNotFoundError):
                chunk = chain.open(sequence, base)
                _, position, ends = chunk.floor(max(floor, base))
                used += 0 if ends else chunk.filled(position)[1]
    return max(found.next_index - floor, 0), used


def _refused(session: Session) -> Iterator[str]:
    home = session.home
    beside = [(home.fd, name) for name in (CONTROL, ADMIN, DEDUP)]
    theirs = [(home.consumers, f"{name}{ending}") for name in home.consumer_names() for ending in _OF_NAMES]
    for folder, name in beside + theirs:
        try:
            home.open(folder, name, writable=False)[0].close()
        except FileNotFoundError:
            pass
        except errors.Unsafe as problem:
            yield str(problem)


def _locked(session: Session, folder: _native.Fd, name: str, start: int, length: int) -> bool:
    """Whether anybody holds a lock on those bytes of that file: asked, not taken."""
    try:
        fd, _ = session.home.open(folder, name, writable=False)
    except (FileNotFoundError, errors.ShmqError):
        return False
    with fd:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(fd.fileno(), fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)

"""
What is looked at, of one queue: its figures, who has it open, how far each name is, and the disk below it.

All of it is read: from the queue's pages, opened to read only, and from /proc. Rates are of `looks`, which has two of
these.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import TYPE_CHECKING

from shmq import errors, stats, whose
from shmq._native import holdings
from shmq.diagnosis import facts as seen
from shmq.storage import ring as rings

if TYPE_CHECKING:
    from shmq.session import Session
    from shmq.stats import ConsumerStats
    from shmq.whose import Process

_LATENCY_FIRST = 1024e-9
"""Up to so many seconds the first bucket of `Counts.latency` counts; each further one twice as many."""
_SAMPLE = 256
"""So many of the last puts are asked whose they are."""


@dataclasses.dataclass(frozen=True)
class ProcessFacts:
    """
    A process that has the queue open; one that has it open to read only has no seat, and is not seen.

    Attributes:
        pid: as it sees itself.
        command: its command line, up to 120 characters; "" where that cannot be read.
        state: "runs", "stopped", or "unseen": it lives in another pid namespace, or hides.
        consumers: the names that it has open, and the groups that it is a member of.
        share: of the last puts since the look before, how many were its, from 0 to 1.
        put_rate: how many messages it puts a second, by that share; None at the first look.
    """

    pid: int
    command: str
    state: str
    consumers: list[str]
    share: float = 0.0
    put_rate: float | None = None


@dataclasses.dataclass(frozen=True)
class ConsumerFacts:
    """
    What one consumer name is at.

    Attributes:
        name: what it is called.
        kind: "consumer", or "group".
        lag, oldest, pending: as `ConsumerStats` has them; with a filter, lag counts what does not match, too.
        done: the next put's index less the lag; what it grows by was finished.
        rate: how many it finishes a second; None at the first look.
        parked, returned, dead: of a group: messages that wait for their time, that came back, and that went to the
            dead letters since boot.
        open: whether somebody has it open.
        pids: who.
        problem: what is wrong with it.
    """

    name: str
    kind: str
    lag: int
    oldest: float | None
    pending: int
    done: int
    rate: float | None = None
    parked: int = 0
    returned: int = 0
    dead: int = 0
    open: bool = False
    pids: list[int] = dataclasses.field(default_factory=list)
    problem: str | None = None


@dataclasses.dataclass(frozen=True)
class QueueFacts:
    """
    One queue at one moment.

    Attributes:
        path: where it is, as it was found.
        time: when it was looked at, in seconds since 1970.
        problem: why it cannot be read; all other figures mean nothing then.
        first_index, next_index: the indexes there are.
        put_rate: messages put a second, by indexes; None at the first look.
        take_rate: messages that all its names together finish a second.
        lag, oldest: of the name that is most behind, and of the one whose first message is oldest.
        disk_bytes: bytes the file system counts for all its files.
        disk_free, disk_size: of the file system that it is on.
        max_messages, max_bytes: its bounds.
        state: "finished", "shut down", "follower", "fenced", or "".
        held_by: what one name alone holds back, if that is much.
        consumers, processes: who takes, and who has it open.
        latency: (seconds, messages): since boot, of about one message of 64, how many were at most so old when they
            were first taken, and older than the pair before says; the last has all that were older.
    """

    path: str
    time: float
    problem: str | None = None
    first_index: int = 0
    next_index: int = 0
    put_rate: float | None = None
    take_rate: float | None = None
    lag: int = 0
    oldest: float | None = None
    disk_bytes: int = 0
    disk_free: int = 0
    disk_size: int = 0
    max_messages: int | None = None
    max_bytes: int | None = None
    state: str = ""
    held_by: str | None = None
    consumers: list[ConsumerFacts] = dataclasses.field(default_factory=list)
    processes: list[ProcessFacts] = dataclasses.field(default_factory=list)
    latency: list[tuple[float, int]] | None = None


def of_queue(session: Session, path: str, since: int | None) -> QueueFacts:
    """Of an open queue; *since*: its next index at the look before, where there was one. Without rates."""
    found = stats.of_queue(session)
    joined = session.joined()
    people = whose.living(joined.control, joined.member)
    takers = {name: _takers(session, name, each, people) for name, each in found.consumers.items()}
    consumers = [_of_consumer(name, each, takers[name], people) for name, each in found.consumers.items()]
    shares = {} if since is None else _shares(session, since, found.next_index)
    room = os.statvfs(session.path)
    return QueueFacts(
        path=path,
        time=time.time(),
        first_index=found.first_index,
        next_index=found.next_index,
        lag=max((each.lag for each in consumers), default=0),
        oldest=max((each.oldest for each in consumers if each.oldest is not None), default=None),
        disk_bytes=found.disk_bytes,
        disk_free=room.f_bavail * room.f_frsize,
        disk_size=room.f_blocks * room.f_frsize,
        max_messages=found.max_messages,
        max_bytes=found.max_bytes,
        state=_state(found),
        held_by=found.held_by.name if found.held_by is not None and found.held_by.much else None,
        consumers=consumers,
        processes=[
            ProcessFacts(
                each.pid,
                each.command,
                each.state,
                [name for name, (_, owners) in takers.items() if owner in owners],
                shares.get(owner, 0.0),
            )
            for owner, each in people.items()
        ],
        latency=_latency(found.counts),
    )


def _state(found: stats.Stats) -> str:
    if found.role is not None:
        return found.role
    return "shut down" if found.shut_down else "finished" if found.finished else ""


def _of_consumer(
    name: str, its: ConsumerStats, taker: tuple[bool, list[int]], people: dict[int, Process]
) -> ConsumerFacts:
    is_open, owners = taker
    group = its.group
    return ConsumerFacts(
        name=name,
        kind="group" if its.shared else "consumer",
        lag=its.lag,
        oldest=its.oldest,
        pending=its.pending,
        done=its.head + its.behind - its.lag,
        parked=group.parked if group else 0,
        returned=group.returned if group else 0,
        dead=group.moved if group else 0,
        open=is_open,
        pids=sorted(people[owner].pid for owner in owners),
        problem=its.problem,
    )


def _latency(counts: stats.Counts | None) -> list[tuple[float, int]] | None:
    """What the queue has counted, each number with the bound of its bucket."""
    if counts is None:
        return None
    return [(_LATENCY_FIRST * 2**at, number) for at, number in enumerate(counts.latency)]


def _takers(session: Session, name: str, its: ConsumerStats, people: dict[int, Process]) -> tuple[bool, list[int]]:
    """Whether somebody has that name open, and who: the owners of seats. Of a group, who has entered it and lives."""
    with contextlib.suppress(FileNotFoundError, errors.ShmqError):  # dropped meanwhile, or damaged
        if not seen.is_open(session, name):
            return False, []
        checkpoint = session.home.checkpoint(name)
        if not its.shared:
            return True, [checkpoint.holder] if checkpoint.holder in people else []
        with contextlib.closing(rings.map_ring(session.home, name, writable=False)) as memory:
            return True, [owner for owner in holdings.tenants(memory) if owner in people]
    return False, []


def _shares(session: Session, since: int, end: int) -> dict[int, float]:
    """By owner, how much of the last puts from index *since* to before *end* was whose."""
    if since >= end:
        return {}
    chain = session.chain()
    for sequence, base in reversed(chain.listed()):
        with contextlib.suppress(FileNotFoundError, errors.ShmqError):  # retired, or damaged: it is said elsewhere
            counts = holdings.putters(chain.open(sequence, base), max(since, end - _SAMPLE), _SAMPLE)
            if counts:
                total = sum(counts.values())
                return {owner: count / total for owner, count in counts.items()}
        if base <= since:
            break
    return {}

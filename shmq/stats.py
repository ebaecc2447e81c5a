"""Statistics of a queue and its consumers: what is in it, who has it open, how far each name is."""

from __future__ import annotations

import contextlib
import dataclasses

from shmq import _native, ending, errors, roles
from shmq.hints import TYPE_CHECKING
from shmq.storage import departures, laggards, pins, space, subscriptions
from shmq.storage import ring as rings
from shmq.storage.recover import asides
from shmq.taking import backlog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmq.filter import Filter
    from shmq.session import Session
    from shmq.storage.laggards import Held
    from shmq.storage.subscriptions import Subscription


@dataclasses.dataclass(frozen=True)
class GroupStats:
    """
    What a group is at.

    Attributes:
        pending: messages handed out and not finished.
        returned: messages that came back and that nobody has yet.
        parked: messages that wait for their time, or for one before them of their key, outside the window.
        waiting: messages in the window that wait for one before them of their key.
        window: messages that may be in flight.
        full: whether somebody waits because so many are; acknowledge, or make another name with a larger window.
        redelivered, expired, moved: since this boot: messages that came back from the dead or by a lease that ended;
            that were too old; that went to the dead letters.
        retired: likewise: what retention by age or bytes took before anybody had finished it, by indexes: some may
            never have had a message.
        unmoved: since this boot: how often one could not be moved to the dead letters, or to `expire_to`, and was left
            aside for later; also while that queue is not tried, since it took nothing just before.
    """

    pending: int
    returned: int
    parked: int
    window: int
    full: bool
    redelivered: int
    expired: int
    moved: int
    waiting: int = 0
    retired: int = 0
    unmoved: int = 0


@dataclasses.dataclass(frozen=True)
class Counts:
    """
    What was done at a queue since the machine booted, by all processes, also those that have gone. Each only rises.

    Attributes:
        put_messages, put_bytes: put, and bytes of their payloads; not what was adopted.
        taken_messages: handed out by consumers, again and again if they came back. Readers take nothing.
        acked, nacked: acknowledged, and given back, one by one: by consumers with ack="explicit".
        waits, room_waits: how often somebody slept until something was put, or there was room; not in event loops.
        syncs: group commits.
        latency: messages, about one of 64, by how long they were in the queue before they were handed out for the first
            time, by their times: the first number is of up to 1024 ns, each further one of up to twice as long, the
            last one of all that took longer.
        latency_seconds: how long all those were in it together.
    """

    put_messages: int
    put_bytes: int
    taken_messages: int
    acked: int
    nacked: int
    waits: int
    room_waits: int
    syncs: int
    latency: tuple[int, ...]
    latency_seconds: float


@dataclasses.dataclass(frozen=True)
class ConsumerStats:
    """
    What one consumer name is at.

    Attributes:
        head: the next index that a name of one process has not finished; below a group's, all is finished or parked.
        lag: messages that are not finished: exactly, for padding and gaps do not count, nor what a group has finished
            above its head; what is handed out, parked or waiting does.
        ack: "auto" or "explicit".
        dropped: what was dropped before this name came to it, by indexes: some may never have had a message.
        group: more, if it is a group, or a consumer with explicit acknowledgements.
        floor: the first index that is not finished, parked messages included; the next put's when all is.
        oldest: the age in seconds of the message there, by its time; None when there is none.
        pending: messages handed out and not finished.
        problem: of a group whose ring is damaged, what is wrong with it. What it has finished above what is known to be
            finished nobody can tell then, so `lag` counts it, and `group` is None. Nobody can join it.
        hold: as `Queue.consumer` was told: True, what it has not finished is kept under every retention; "nothing",
            neither retention nor bounds look at it.
        shared: whether it is a group, which any number of processes share.
        behind: how many indexes lie between it and the end of the queue, whatever is there.
        filter: which messages it wants; None for all. With one, `lag` counts what does not match, too: so many at most.
            To count what matches takes a walk over all of it, as `Consumer.lag` does.
        ephemeral, expires: as `Queue.consumer` was told.
    """

    head: int
    lag: int
    ack: str
    dropped: int = 0
    group: GroupStats | None = None
    floor: int = dataclasses.field(default=0, compare=False)
    oldest: float | None = dataclasses.field(default=None, compare=False)
    pending: int = dataclasses.field(default=0, compare=False)
    problem: str | None = None
    hold: bool | str = dataclasses.field(default=False, compare=False)
    shared: bool = False
    behind: int = dataclasses.field(default=0, compare=False)
    filter: Filter | None = None
    ephemeral: bool = False
    expires: float | None = None


@dataclasses.dataclass(frozen=True)
class Stats:
    """
    What is in a queue and who is at it, as it was while looking.

    Attributes:
        first_index, next_index: the indexes there are; next_index is the next put's.
        chunks, disk_bytes: chunk files, and bytes the file system counts for all files.
        padded: indexes there are that a dead or aborted claim took.
        fenced: commits that came too late, since the queue was made or the machine booted.
        participants: processes that have it open.
        consumers: by name.
        max_messages, max_bytes: its bounds; None without.
        damaged: names whose checkpoint cannot be read, and why. Each holds back all that it may need, until
            `drop_consumer` removes it.
        finished: whether the stream has ended for good (`Queue.finish`).
        shut_down: whether puts are refused until all have left (`Queue.shutdown`).
        held_by: what one name alone holds back; None when none does.
        aside: what recoveries have set aside: {epoch: names of files}; `repair(path, aside=epoch)` makes a queue of it.
        role: "follower", it follows another queue; "fenced", one that followed it was promoted; "promoted", it was a
            follower; None for all others. How far a follower is behind is known where its source is: the lag of the
            name replica.NAME.
        counts: what was done here since the boot.
    """

    first_index: int
    next_index: int
    chunks: int
    disk_bytes: int
    padded: int
    fenced: int
    participants: int
    consumers: dict[str, ConsumerStats]
    max_messages: int | None
    max_bytes: int | None
    damaged: dict[str, str] = dataclasses.field(default_factory=dict)
    finished: bool = False
    shut_down: bool = False
    aside: dict[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    held_by: Held | None = dataclasses.field(default=None, compare=False)
    role: roles.Role | None = None
    counts: Counts | None = dataclasses.field(default=None, compare=False)


def of_queue(session: Session) -> Stats:
    """As `Queue.stats`."""
    joined = session.joined()
    bounds = joined.control.bounds()
    found = of_consumers(session)
    journal = session.home.read_journal()
    return Stats(
        first_index=session.first_index,
        next_index=session.next_index,
        chunks=len(session.chain().names()),
        disk_bytes=session.home.disk_bytes(),
        padded=space.padded(session.home, session.chain()),
        fenced=joined.control.counters()[1],
        participants=sum(joined.member.slot_locked(slot) for slot, *_ in joined.control.participants()),
        consumers=found,
        max_messages=bounds.max_messages or None,
        max_bytes=bounds.max_bytes or None,
        damaged=session.home.damaged_names(),
        finished=ending.is_finished(journal),
        shut_down=joined.control.is_shut_down(),
        aside=asides.set_aside(session.home),
        held_by=_held_by(session, found, bounds),
        role=roles.of(journal),
        counts=_counts(joined.control),
    )


def _counts(control: _native.Control) -> Counts:
    counted = control.counts()._asdict()
    latency_ns = counted.pop("latency_ns")
    return Counts(**counted, latency_seconds=latency_ns / 1e9)


def _held_by(session: Session, found: Mapping[str, ConsumerStats], bounds: _native.Bounds) -> Held | None:
    """Of names that hold anything at all, which those of Spark's queries, for one, do not."""
    kept = session.current_options().retention.kind == "acked" or bounds.max_messages or bounds.max_bytes
    floors = {name: each.floor for name, each in found.items() if each.hold is True or (kept and not each.hold)}
    return laggards.held(session.home, session.chain(), floors, session.next_index, bounds)


def of_consumers(session: Session) -> dict[str, ConsumerStats]:
    """As `Queue.consumers`."""
    end = session.next_index
    control = session.joined().control
    dropped = control.bounds().dropped
    departures.sweep(session.home, control)
    found = {}
    for name in session.home.consumer_names():
        with contextlib.suppress(FileNotFoundError, errors.Corrupt, errors.BadFormat, errors.Unsafe):
            found[name] = _of_consumer(session, name, end, dropped)
    return found


def _of_consumer(session: Session, name: str, end: int, dropped: int) -> ConsumerStats:
    checkpoint = session.home.checkpoint(name)
    ring, problem = _look_at_ring(session, name, checkpoint)
    subscription, strange = _look_at_subscription(session, name, checkpoint)
    group = None if ring is None else _of_group(ring)
    behind = (
        backlog.of_name(session.home, session.joined(), checkpoint, end)
        if ring is None
        else backlog.of_group(session.home, session.joined(), ring, end)
    )
    head = checkpoint.head
    if checkpoint.ring:
        soon = 0 if ring is None else ring.figures().to_drop
    else:
        soon = max(min(dropped, end) - max(head, checkpoint.handed), 0)
    return ConsumerStats(
        head=head,
        lag=behind.lag,
        ack="explicit" if checkpoint.explicit else "auto",
        dropped=checkpoint.dropped + soon,
        group=group,
        floor=behind.floor,
        oldest=backlog.oldest(session.access(), behind, end),
        pending=group.pending if group else 0,
        problem=problem or strange,
        hold=pins.holds(session.home, name),
        shared=checkpoint.kind == _native.CHECKPOINT_GROUP,
        behind=max(end - head, 0),
        filter=subscription.filter,
        ephemeral=subscription.ephemeral,
        expires=subscription.expires,
    )


def _look_at_subscription(
    session: Session, name: str, checkpoint: _native.Checkpoint
) -> tuple[Subscription, str | None]:
    """What else the name was made with, or what is wrong with that."""
    try:
        return subscriptions.read(session.home, name, checkpoint), None
    except (errors.Corrupt, errors.BadFormat, errors.Unsafe) as problem:
        return subscriptions.EVERYTHING, str(problem)


def _look_at_ring(
    session: Session, name: str, checkpoint: _native.Checkpoint
) -> tuple[_native.Ring | None, str | None]:
    """The ring of a group, or what is wrong with it; neither for a name of its own."""
    try:
        return (rings.look(session.home, name, checkpoint) if checkpoint.ring else None), None
    except (errors.Corrupt, errors.BadFormat, errors.Unsafe) as problem:
        return None, str(problem)


def _of_group(ring: _native.Ring) -> GroupStats:
    figures = ring.figures()
    return GroupStats(
        pending=figures.claimed,
        returned=figures.returned,
        parked=figures.parked,
        window=figures.window,
        full=bool(figures.at_edge),
        redelivered=figures.redelivered,
        expired=figures.expired,
        moved=figures.moved,
        waiting=figures.waiting,
        retired=figures.retired,
        unmoved=figures.unmoved,
    )

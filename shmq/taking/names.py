"""
The names of consumers, alone or as a group: where a new one begins, its checkpoint, its lock; and, with the queue's
locks and counts around it, what storage/names.py does to those that nobody has open.
"""

from __future__ import annotations

import contextlib
import os
import time

from shmq import _native, errors, given
from shmq.hints import TYPE_CHECKING
from shmq.storage import departures, files, pins, space, subscriptions, sync
from shmq.storage import names as stored
from shmq.storage.paths import CONSUMERS, check_consumer_name
from shmq.storage.subscriptions import EVERYTHING

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

    from shmq.session import Session
    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory
    from shmq.storage.subscriptions import Subscription


_TRIES = 8
"""How often a name is opened that goes by itself while that is done."""
_FORK_WITHIN = 0.5
_LOOK_AGAIN = 0.002
"""Seconds."""


def start_index(session: Session, start: str | float | datetime.datetime) -> int:
    """
    Where a new name begins. "latest" is the end as it is when the name is made: puts that begin later are seen.

    Raises:
        TypeError, ValueError: *start* means no index.
        IndexError: it is beyond the end of the queue, or negative; no name was made.
    """
    if start == "earliest":
        return session.first_index
    index = session.access().index_of(start, "start")
    end = session.next_index
    if not 0 <= index <= end:
        raise IndexError(
            f"cannot begin at start={start!r}: {session.path} has indexes from {session.first_index} to {end}; no "
            "consumer was made"
        )
    return index


def check_ack(ack: str | None) -> None:
    """
    Refuse what is no way to acknowledge. None is: the one that the name was made with.

    Raises:
        TypeError, ValueError: it is none.
    """
    if ack is not None and given.text("ack", ack, '"auto" or "explicit"') not in ("auto", "explicit"):
        raise ValueError(f'ack={ack!r}: "auto" or "explicit"')


def make_checkpoint(
    home: Directory, name: str, start: int, *, explicit: bool, kind: int, subscription: Subscription = EVERYTHING
) -> _native.Lock | None:
    """
    The name is there once this has made its checkpoint; under the administrative lock.

    One that goes with its holder is held before anybody can see it: by the lock that is returned.
    """
    subscriptions.make(home, name, subscription)
    content = _native.Checkpoint.format(
        home.queue_id,
        name,
        kind=kind,
        explicit=explicit,
        start=start,
        created_ns=time.time_ns(),
        subscribed=subscription.says_something(),
    )
    lock = None
    if subscription.ephemeral:
        lock = _made_and_held(home, name, content, shared=kind == _native.CHECKPOINT_GROUP)
    else:
        _made(home, name, content)
    sync.directory(home.consumers, "consumers")  # what it will acknowledge is kept under that name
    return lock


def _made(home: Directory, name: str, content: bytes) -> None:
    """Behind its beginning it is all zeros, as a new file is."""
    file, where, beginning = f"{name}.checkpoint", f"{home.path}/{CONSUMERS}", content[: _native.SNAPSHOT_BASE]
    if home.small:  # storage/ring.py, `room_for_snapshots`
        files.make_file(home.consumers, file, beginning, where, "checkpoint", len(content))
        return
    with files.new_file(home.consumers, len(content), where) as fd:
        try:
            sync.write(fd, beginning, 0, "checkpoint")
            sync.data(fd, "checkpoint")
        except OSError as problem:
            raise files.explained(problem, where, file) from None
        files.link_file(fd, home.consumers, file, where)


def _made_and_held(home: Directory, name: str, content: bytes, *, shared: bool) -> _native.Lock:
    where = f"{home.path}/{CONSUMERS}"
    with files.new_file(home.consumers, len(content), where) as fd:
        sync.write(fd, content, 0, "checkpoint")
        sync.data(fd, "checkpoint")
        lock = _native.Lock(fd)
        try:
            held = lock.share() if shared else lock.take()
            assert held  # noqa: S101  # nobody can see it
            files.link_file(fd, home.consumers, f"{name}.checkpoint", where)
        except BaseException:
            lock.free()
            raise
    return lock


def let_go(home: Directory, name: str) -> None:
    """Take the name away, if it goes by itself and its time is over: who opens it now begins anew."""
    if files.is_there(home.consumers, f"{name}{subscriptions.ENDING}"):
        with home.admin():
            departures.settle(home, name)


def persistently(subscription: Subscription, opening: Callable[[], None], let_go: Callable[[], None]) -> None:
    """Open a name, again if it went by itself meanwhile; what was begun is let go of first."""
    for _ in range(_TRIES if subscription.goes() else 0):
        try:
            return opening()
        except (errors.NotFound, FileNotFoundError):
            let_go()
    return opening()


def leave(home: Directory, name: str, subscription: Subscription, control: _native.Control, chain: Chain) -> None:
    """Its holder has let go of it: one that goes with it goes, and what it alone held back may go."""
    if subscription.goes():
        gone = departures.leave(home, name, subscription)
        control.recount()  # who waits for room need not wait for it any more, or now knows until when
        if gone:
            space.retire(home, chain, control)


class IsLone(Exception):
    """Whoever opens a name as it was made has found that it acknowledges explicitly, with a ring of its own."""


def is_lone(session: Session, name: str) -> bool:
    """Whether there is such a name, and it acknowledges explicitly with a ring of its own."""
    session.joined()
    with contextlib.suppress(FileNotFoundError):
        checkpoint = session.home.readable_checkpoint(name)
        return checkpoint is not None and checkpoint.kind == _native.CHECKPOINT_LONE
    return False


def hold_alone(
    home: Directory, name: str, checkpoint: _native.Checkpoint, lock: _native.Lock, control: _native.Control
) -> None:
    """
    Hold the name alone.

    Nobody that sits here may have it when its holder has just been forked: the child has what was open then, until it
    runs for the first time. That is waited for.

    Raises:
        Busy: somebody has it, who is named.
    """
    taken = patiently(home, lock.take)
    until = time.monotonic() + _FORK_WITHIN
    while not taken:
        holder = _holder(checkpoint, control)
        if holder or time.monotonic() >= until:
            raise errors.Busy(
                f"consumer {name!r} of {home.path} is held by {holder or 'another process'}; "
                "use another name, or wait until it is closed"
            )
        time.sleep(_LOOK_AGAIN)
        taken = lock.take()


def _holder(checkpoint: _native.Checkpoint, control: _native.Control) -> str:
    """Who has it; empty when that is nobody who sits here."""
    slot = checkpoint.holder >> 11
    for seat, generation, pid, *_ in control.participants():
        if seat == slot and generation == checkpoint.holder & 0x7FF:
            return "this process (close it first)" if pid == os.getpid() else f"process {pid}"
    return ""


def take_up_hold(home: Directory, name: str, control: _native.Control, *, hold: bool | str | None) -> None:
    """Have it hold chunks back or not, as was asked for; by whoever holds the name."""
    if hold is not None and hold != pins.holds(home, name):
        with home.admin():
            pins.set_hold(home, name, hold=hold)
        control.recount()


def patiently(home: Directory, lock: Callable[[], bool]) -> bool:
    """
    Whether *lock* got the name: tried again under the administrative lock, since who administers has it for a moment.

    Raises:
        Busy: the queue is administered for long.
    """
    if lock():
        return True
    with home.admin():
        return lock()


def check_not_dropped(home: Directory, name: str, fd: int, what: str) -> None:
    """
    Refuse a checkpoint, open as *fd* and locked by now, that is not the one of that name any more.

    Raises:
        NotFound: *what* (consumer, group) was dropped in between.
    """
    with contextlib.suppress(FileNotFoundError):
        mine, now = os.fstat(fd), os.stat(f"{name}.checkpoint", dir_fd=home.consumers, follow_symlinks=False)
        if mine.st_nlink == 1 and mine.st_ino == now.st_ino:
            return
    raise errors.NotFound(f"{what} {name!r} of {home.path} was dropped while it was being opened")


def _when_free(session: Session, name: str, work: Callable[[], None]) -> None:
    """Do *work* under the administrative lock, which needs the name alone: a forked child is waited for here, too."""
    home, control = session.home, session.joined().control
    until = time.monotonic() + _FORK_WITHIN
    while True:
        try:
            with home.admin():
                return work()
        except errors.Busy:
            checkpoint = home.readable_checkpoint(name)
            if time.monotonic() >= until or (checkpoint is not None and _holder(checkpoint, control)):
                raise
        time.sleep(_LOOK_AGAIN)


def drop(session: Session, name: str) -> None:
    """As `Queue.drop_consumer`."""
    check_consumer_name(name)
    session.refuse_change(f"drop consumer {name!r}", taking=True)
    _when_free(session, name, lambda: stored.drop(session.home, name))
    session.joined().control.recount()  # and its head holds no producer
    space.retire(session.home, session.chain(), session.joined().control)  # what it alone held back may go


def rename(session: Session, old: str, new: str) -> None:
    """As `Queue.rename_consumer`."""
    check_consumer_name(old)
    check_consumer_name(new)
    session.refuse_change(f"rename consumer {old!r}", taking=True)
    _when_free(session, old, lambda: stored.rename(session.home, old, new))
    session.joined().control.recount()


def purge(session: Session) -> int:
    """As `Queue.purge`."""
    session.refuse_change("purge", taking=True)
    home, control, chain, end = session.home, session.joined().control, session.chain(), session.next_index
    with home.admin():
        with stored.finishing(home, session.joined().member) as finish:
            home.write_journal(home.read_journal()._replace(dropped=end))  # which outlives a reboot
            finish(end)
            control.drop_for_all(end)  # last: until then an opening would finish what was written down
        control.wake()
        space.retire_purged(home, chain, control)
    return end

"""Looking after queues that are not open: deleting, verifying, repairing, removing what the killed left behind."""

from __future__ import annotations

import os

from shmq import errors, given, later, user_group, where
from shmq.hints import TYPE_CHECKING
from shmq.session import Session
from shmq.storage import directory, making, volatile

if TYPE_CHECKING:
    from shmq.given import Progress
    from shmq.storage.repairing import Repaired
    from shmq.storage.verify import Verified

_EPOCH_MAX = (1 << 32) - 1


def delete(path: str | os.PathLike[str]) -> None:
    """
    Delete the queue at *path*, with everything in it. Interrupted, it can be called again, and finishes the work; at
    worst an empty directory is left.

    Raises:
        NotFound: there is none.
        Busy: a process has it open.
        Unsafe: something else lies in its directory; nothing was deleted.
    """
    place = _here(path)
    try:
        session = Session(place, create=False, trusted=True, group=_group_at(place))
    except errors.NotFound:
        if not volatile.is_volatile(place) and making.finish_deletion(os.path.abspath(place), _group_at(place)):
            return
        raise
    with session, session.home.admin():
        if _participants(session) > 1 or session.joined().shared():
            raise errors.Busy(f"cannot delete {session.path}: it is open, here or in another process")
        making.delete(session.home)


def _here(path: object) -> str:
    """The directory, or volatile queue, that is meant."""
    place = given.path("path", path)
    return place if volatile.is_volatile(place) else given.directory("path", path)


def _group_at(place: str) -> int | None:
    """Who shares the directory there. Whoever looks after a queue need not say so: the path was named for that."""
    try:
        return None if volatile.is_volatile(place) else user_group.of_directory(os.lstat(place))
    except OSError:
        return None


def _participants(session: Session) -> int:
    joined = session.joined()
    return sum(joined.member.slot_locked(slot) for slot, *_ in joined.control.participants())


def verify(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Verified:
    """
    As `Queue.verify`, of a queue that is not open, and need not be fit to be opened.

    Args:
        path: the queue, or "shm:NAME" while somebody has that open.
        progress: called with "verified", how many messages were whole so far, and what share of the files that was.

    Raises:
        NotFound, BadFormat, Unsafe: there is none, or it is not safe to look at.
        Corrupt: queue.shmq is damaged, without which nothing can be told.
    """
    place, told = _here(path), given.progress(progress)
    with where.at(place if volatile.is_volatile(place) else where.absolute(place)):
        later.ready("shmq.storage.verify")
        from shmq.storage import verify as module  # noqa: PLC0415

        if volatile.is_volatile(place):
            with Session(place, create=False, read_only=True, trusted=True) as session:
                return module.verify(session.home, told)
        home = directory.Directory(place, read_only=True, trust_owner=True)
    try:
        return module.verify(home, told)
    finally:
        home.close()


def repair(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    in_place: bool = False,
    aside: int | None = None,
    progress: Progress | None = None,
) -> Repaired:
    """
    As `Queue.repair`, of a queue that is not open, and need not be fit to be opened.

    Args:
        path: the damaged queue.
        to: where the clean one goes; PATH.repaired by default.
        in_place: have the clean one take the place of the damaged one, which is renamed to PATH.damaged. One that is
            whole is left as it is.
        aside: make a queue of what a recovery has set aside instead, at PATH.aside-EPOCH by default: the epoch that
            was there before, `Recovery.from_epoch`. Its messages have their indexes; what comes before the cut in the
            same file is in both queues.
        progress: called with "verified", later "repaired", how many messages were whole so far, and what share of the
            files that was.

    Raises:
        Unsafe: there is something at *to*.
        Busy: in_place, and somebody has it open.
        Fenced: in_place, and it follows another queue, which has what is damaged here.
        NotFound: aside, and that recovery has set nothing aside; or there is no queue.
        NotFound, BadFormat, Corrupt, DiskFull: as for `verify`; nothing was changed.
    """
    place, told = given.directory("path", path), given.progress(progress)
    with where.at(where.absolute(place)):
        later.ready("shmq.storage.repairing")
        from shmq.storage import repairing  # noqa: PLC0415

    target = None if to is None else given.directory("to", to)
    epoch = None if aside is None else given.whole("aside", aside, 0, _EPOCH_MAX)
    if given.flag("in_place", in_place) and (target is not None or epoch is not None):
        raise ValueError("in place, or to another place; not both")
    home = directory.Directory(place, read_only=not in_place, trust_owner=not in_place, group=_group_at(place))
    try:
        if epoch is not None:
            return repairing.salvage(home, target, epoch, told)
        return repairing.repair(home, target, told, in_place=in_place)
    finally:
        home.close()


def volatile_queues() -> list[str]:
    """
    The names of the volatile queues of this user, and of the groups it is in, as `open` takes them; also of those that
    `gc` would take away.
    """
    return volatile.names()


def gc(*, dry_run: bool = False) -> list[str]:
    """
    Take away the volatile queues that nobody has open, because all who had were killed. Returns their names.

    Whoever opens such a name again does the same for it.

    Args:
        dry_run: only say which would go.
    """
    return volatile.unused() if given.flag("dry_run", dry_run) else volatile.gc()

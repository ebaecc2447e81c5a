"""
How a stream ends: by a shutdown, which lasts until all have left, or by a finish, which outlives everybody.

A shutdown is a word of the control page. That a queue is finished stands in the journal, and the control page says so
to those who have it open: FINISHING before the journal is written, and FINISHED behind it. So whoever meets FINISHING,
and nobody at work, goes by the journal: a finisher that was killed has finished the queue, or has not.
docs/decisions/0033-the-end-of-a-stream.md.
"""

from __future__ import annotations

import contextlib

from shmq import _native, errors, later, roots
from shmq.hints import TYPE_CHECKING
from shmq.storage.chain import Chain

if TYPE_CHECKING:
    from shmq.durability import Syncer
    from shmq.membership import Membership
    from shmq.storage.directory import Directory

_CLAIMS_S = 1.0
"""How long to wait under the administrative lock for claims that were made just before the end was sealed."""


def over(home: Directory, control: _native.Control) -> bool:
    """Whether the stream ends here: what is there is drained, and nothing more comes."""
    if control.is_shut_down() or is_fenced(home):
        return True
    state, _ = control.finished()
    if state == _native.FINISHING:
        if home.read_only:
            return is_finished(home.read_journal())
        with contextlib.suppress(errors.Busy), home.admin(timeout=0):  # its finisher is at work, or was killed
            _publish(control, home.read_journal())
        state, _ = control.finished()
    return state == _native.FINISHED


def is_fenced(home: Directory) -> bool:
    """Whether it was opened when a queue that followed it had been promoted: what is there is all that ever comes."""
    return bool(home.journal.flags & _native.JOURNAL_FENCED)


def words(home: Directory, control: _native.Control) -> str:
    """What became of the queue."""
    if control.is_shut_down():
        return "was shut down"
    return "is fenced" if is_fenced(home) else "was finished"


def is_finished(journal: _native.Journal) -> bool:
    """Whether that journal says so."""
    return bool(journal.flags & _native.JOURNAL_FINISHED)


def take_up(home: Directory, control: _native.Control) -> None:
    """At an opening: have the control page say what the journal says, and remember what was found."""
    state, _ = control.finished()
    if state != (_native.FINISHED if is_finished(home.journal) else _native.UNFINISHED) and not home.read_only:
        with home.admin():
            _publish(control, home.read_journal())
    state, times = control.finished()
    home.found_finished = times if state == _native.FINISHED else -1


def finish(home: Directory, membership: Membership) -> None:
    """
    As `Queue.finish`, which is how to call it.

    The end is sealed: whoever was about to put there comes by the control page again. What was put is on the disk
    before the journal says that nothing more comes.
    """
    later.ready("shmq.durability")
    from shmq.durability import Syncer  # noqa: PLC0415  # only who syncs pays for it

    chain, syncer = Chain(home, membership.member), Syncer(home, membership, here=True)
    while True:
        if not home.volatile:
            syncer.sync()  # also waits for what is reserved, before anybody is kept waiting
        with home.admin():
            if _finish(home, membership.control, chain, syncer):
                return


def _finish(home: Directory, control: _native.Control, chain: Chain, syncer: Syncer) -> bool:
    """Under the administrative lock: whether it is done; not, when somebody has claimed something meanwhile."""
    journal = home.read_journal()
    if is_finished(journal):
        _publish(control, journal)
        return True
    control.set_finished(_native.FINISHING, control.finished()[1])
    try:
        _seal(chain)
        if not home.volatile:
            syncer.tick(_native.monotonic_ns() + int(_CLAIMS_S * 1e9))
        home.write_journal(journal._replace(flags=journal.flags | _native.JOURNAL_FINISHED))
    except errors.SyncPending:
        return False
    finally:
        _publish(control, home.read_journal())
    return True


def _seal(chain: Chain) -> None:
    """Nobody claims anything behind what is there now without having looked whether it may."""
    last = -1
    while True:
        live = chain.names()
        if not live or live[-1][0] == last:
            return
        chunk = chain.tail()
        if chunk.sealed() is None:
            chunk.seal()
        last = chunk.sequence


def reopen(home: Directory, control: _native.Control, *, alone: bool = False) -> bool:
    """
    Whether what was refused may be tried again: a handle that was opened behind the end goes on behind it.

    A shard stays finished, for everybody: who has drained it is at the shards that came after it, and never comes back.

    *alone*: the administrative lock is held.

    Raises:
        Busy: somebody administers the queue for long.
        ShutDown: it is such a shard.
    """
    state, times = control.finished()
    if control.is_shut_down() or (state == _native.FINISHED and home.found_finished != times):
        return False
    if state != _native.UNFINISHED and roots.is_shard(home.path):
        raise errors.ShutDown(
            f"cannot put into {home.path}: it is a shard that was finished, and it stays so; nothing was put. What has "
            "its root open by shmq.shards.open puts into the shards that are open"
        )
    with contextlib.nullcontext() if alone else home.admin():
        journal = home.read_journal()
        _publish(control, journal)
        state, times = control.finished()
        if state == _native.FINISHED and home.found_finished == times:
            home.write_journal(journal._replace(flags=journal.flags & ~_native.JOURNAL_FINISHED))
            _publish(control, home.journal)
    return control.finished()[0] == _native.UNFINISHED


def check_open(home: Directory, control: _native.Control) -> None:
    """
    Have it open for a set to be adopted. Under the administrative lock.

    Raises:
        ShutDown: it is not, and not for this handle.
    """
    if over(home, control) and not reopen(home, control, alone=True):
        raise errors.ShutDown(f"cannot adopt into {home.path}: it {words(home, control)}; nothing was adopted")


def _publish(control: _native.Control, journal: _native.Journal) -> None:
    """Have the control page say what the journal says. Under the administrative lock."""
    state, times = control.finished()
    if is_finished(journal) and state != _native.FINISHED:
        control.set_finished(_native.FINISHED, times + 1)
    elif not is_finished(journal) and state != _native.UNFINISHED:
        control.set_finished(_native.UNFINISHED, times)
    else:
        return
    control.wake()
    control.room()  # who waits for room in a queue with bounds is refused, too

"""
Fencing a follower whose source is to be replaced: from then on it takes nothing of it, durably, and says how far it is.

A receipt is given to one follower, once. So two that are promoted in one era have no receipt in common, and each has,
by the number of receipts, all that n followers have promised to have. Of a receipt that is given to nobody nothing
follows; such a fence can be lifted.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from shmq import _native, errors, given
from shmq.replica import receipts
from shmq.replica.admission import new_id
from shmq.replica.lock import locked
from shmq.session import Session
from shmq.storage import eras, sync
from shmq.storage.paths import CHUNKS, chunk_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.replica.receipts import Receipt
    from shmq.storage.directory import Directory
    from shmq.storage.eras import Era, Part


def fence(path: str | os.PathLike[str], *, give_to: str | None = None, lift: bool = False) -> str:
    """
    Fence the follower at *path*: it takes nothing of any source until it follows one that was promoted. Its receipt.

    The first follower of a queue to be fenced is fenced without *give_to*; with its receipt the others are, and theirs
    are what `promote` takes. It can be said again, and prints the same receipt.

    Args:
        path: a follower of a queue whose puts wait for followers, to which nobody replicates any more.
        give_to: the receipt of the follower that is to be promoted, to which this one gives its own, for good.
        lift: it follows again, as before: as long as its receipt was given to nobody. Returns "".

    Raises:
        NotFound: there is no queue.
        Mismatch: it is no such follower; or it has more than the one that its receipt is to be given to.
        Fenced: its receipt was given before.
        Busy: somebody replicates to it.
        BadFormat: *give_to* is no receipt.
    """
    candidate = None if give_to is None else receipts.read(given.text("give_to", give_to))
    lift = given.flag("lift", lift)
    if lift and candidate is not None:
        raise ValueError("give_to and lift were both given: a receipt that was given is for good")
    with held(given.path("path", path), "fence") as home:
        era, part = eras.era_of(home), standing(home, "fence")
        if lift:
            _lift(home, part)
            return ""
        part = _fenced(home, part)
        if candidate is not None:
            part = _given(home, era, part, candidate)
        return receipts.of(home, era, part).line()


@contextlib.contextmanager
def held(path: str, what: str) -> Iterator[Directory]:
    """
    A follower of a queue whose puts wait for it, with nobody who writes to it; its journal is as it is now.

    Raises:
        Mismatch, NotFound, Busy: see `fence`.
    """
    with Session(os.fspath(path), create=False, trusted=True) as session:
        home = session.home
        if not home.read_journal().flags & _native.JOURNAL_FOLLOWER:
            raise errors.Mismatch(f"cannot {what} {home.path}: it follows no other queue; nothing was changed")
        if home.made_with.durability.kind != "replicated":
            raise errors.Mismatch(
                f"cannot {what} {home.path}: no put waits for it (its durability is not replicated), so there is "
                "nothing to sign; `shmq promote` needs nothing. Nothing was changed"
            )
        lock = locked(session, what)
        try:
            home.read_journal()
            yield home
        finally:
            lock.free()


def standing(home: Directory, what: str) -> Part:
    """
    What this follower is.

    Raises:
        Mismatch: it has not begun, see `Part`.
    """
    part = eras.part_of(home.journal)
    if part is None or not part.begun:
        raise errors.Mismatch(
            f"cannot {what} {home.path}: it has not got yet what was there before it began to follow, so it has "
            "promised nothing; nothing was changed"
        )
    return part


def _write(home: Directory, part: Part) -> Part:
    with home.admin():
        journal = home.read_journal()
        home.write_journal(journal._replace(changed=eras.with_part(journal.changed, part)))
    return part


def _fenced(home: Directory, part: Part) -> Part:
    """Have all that it has on the disk, and then that it is fenced."""
    for sequence, base in home.chunk_names()[-2:]:
        fd, _ = home.open(home.chunks, chunk_name(base, sequence), writable=False)
        with fd:
            sync.data(fd, "chunk")
    sync.directory(home.chunks, CHUNKS)
    return part if part.fence else write_fence(home, part)


def write_fence(home: Directory, part: Part) -> Part:
    """Have a new fence on the disk."""
    return _write(home, part._replace(fence=new_id()))


def _lift(home: Directory, part: Part) -> None:
    if part.given:
        raise errors.Fenced(
            f"cannot have {home.path} follow again: its receipt was given, so a follower may be promoted by it at any "
            "time; nothing was changed"
        )
    _write(home, part._replace(fence=""))


def _given(home: Directory, era: Era, part: Part, candidate: Receipt) -> Part:
    refuse_foreign(home, era, candidate, "fence")
    if candidate.identity == part.id:
        return part  # its own counts by itself
    mine = receipts.of(home, era, part)
    if part.given and part.given != candidate.identity:
        raise errors.Fenced(
            f"cannot give the receipt of {home.path} to {candidate.name!r}: another follower has it, for good; nothing "
            "was changed"
        )
    if mine.end > candidate.end:
        raise errors.Mismatch(
            f"cannot give the receipt of {home.path} to {candidate.name!r}: that one ends at {candidate.end:,}, and "
            f"this one at {mine.end:,}, so it is to be promoted. It is fenced; give it that one's receipt, by this: "
            f"{mine.line()}"
        )
    return part if part.given else _write(home, part._replace(given=candidate.identity))


def refuse_foreign(home: Directory, era: Era, receipt: Receipt, what: str) -> None:
    """
    Refuse a receipt of another queue, of another time, or of nobody who counts.

    Raises:
        Mismatch: it is.
    """
    if receipt.queue_id != home.queue_id:
        raise errors.Mismatch(f"cannot {what} {home.path}: a receipt is of another queue; nothing was changed")
    if (receipt.era, receipt.era_id) != (era.number, era.id):
        raise errors.Mismatch(
            f"cannot {what} {home.path}: the receipt of {receipt.name!r} is of another time: since then, or before, a "
            "queue was promoted. Nothing was changed"
        )
    if receipt.name not in era.followers:
        raise errors.Mismatch(
            f"cannot {what} {home.path}: a receipt is of {receipt.name!r}, and puts wait for "
            f"{', '.join(era.followers)}; nothing was changed"
        )
    known = era.known.get(receipt.name, receipt.identity)
    if known != receipt.identity:
        raise errors.Mismatch(
            f"cannot {what} {home.path}: the receipt of {receipt.name!r} is of another follower of that name than the "
            "one that has promised to have what was put; nothing was changed"
        )

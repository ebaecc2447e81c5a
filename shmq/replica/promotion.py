"""Making a primary of a follower. Only a person does: nothing here can know that the other one is gone for good."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING

from shmq import _native, errors, given
from shmq.replica import admission, fencing, receipts
from shmq.replica.lock import locked
from shmq.session import Session
from shmq.storage import eras, records
from shmq.storage.paths import UPSTREAM
from shmq.storage.recover import apply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmq.replica.receipts import Receipt
    from shmq.storage.directory import Directory
    from shmq.storage.eras import Era, Part
    from shmq.storage.recover.progress import Recovery


_APART_NS = 1_000_000_000
"""Clocks that are no farther apart are one."""


def promote(
    path: str | os.PathLike[str], *, clock_ok: bool = False, fenced: Iterable[str] = (), force: bool = False
) -> Recovery:
    """
    Have the follower at *path* be a queue of its own, which is put into and consumed from, beside whoever reads it.

    It ends where it was whole, and what is put from now on is of a new epoch; indexes that the other queue may have
    given meanwhile are left out. The queue that it followed is fenced when it next meets this one.

    Messages have the times that the clock of the other machine gave them: their `ttl`, and a retention by age, are
    counted by the clock here from now on.

    Where puts waited for n of F followers, F - n + 1 of them are to be fenced, this one counted: then what any put has
    acknowledged is here. The list of followers changes: the name of this one goes, and that of the old source comes.

    Args:
        path: the follower.
        clock_ok: promote it though the clocks were more than a second apart when they last met.
        fenced: the receipts that the others gave to this one: `fence`.
        force: promote it with fewer. What was acknowledged and is not here is lost.

    Raises:
        NotFound: there is no queue.
        Mismatch: it follows nobody; the clocks were apart; there are too few receipts, or one of them is of no use, or
            of a follower that has more. Nothing was changed.
        Fenced: it has given its own receipt to another one, which may be promoted.
        BadFormat: one of them is no receipt.
        Busy: somebody still replicates to it.
        Corrupt: something in it is damaged; nothing was changed.
    """
    clock_ok, force = given.flag("clock_ok", clock_ok), given.flag("force", force)
    signed = [receipts.read(line) for line in _lines(fenced)]
    with Session(os.fspath(path), create=False, trusted=True) as session:
        home = session.home
        if not home.read_journal().flags & _native.JOURNAL_FOLLOWER:
            raise errors.Mismatch(f"cannot promote {home.path}: it follows no other queue; nothing was changed")
        if not clock_ok:
            _refuse_other_time(home)
        lock = locked(session, "promote")
        try:
            home.read_journal()
            changed = _counted(home, signed, force=force)
            return apply.promote(home, session.joined().control, changed)
        finally:
            lock.free()


def _lines(fenced: Iterable[str]) -> list[str]:
    if isinstance(fenced, str):
        raise given.wrong_type("fenced", fenced, "a list of receipts")
    return [given.text("fenced", line, "a list of str, receipts,") for line in fenced]


def _counted(home: Directory, signed: list[Receipt], *, force: bool) -> bytes | None:
    """What the journal says behind the promotion, if the receipts are enough; None where none are needed."""
    if home.made_with.durability.kind != "replicated":
        if signed:
            raise errors.Mismatch(
                f"cannot promote {home.path} by receipts: no put waits for followers, so there are none; nothing was "
                "changed"
            )
        return None
    era = eras.era_of(home)
    part = _part(home, force=force)
    mine = receipts.of(home, era, part)
    voices = {receipt.name: receipt for receipt in signed if receipt.identity != part.id}
    for receipt in signed:
        if receipt.identity != part.id:
            _refuse_useless(home, era, receipt, mine)
            if voices[receipt.name] != receipt:
                raise errors.Mismatch(
                    f"cannot promote {home.path}: two receipts are of {receipt.name!r}, which counts once; nothing was "
                    "changed"
                )
    needed = len(era.followers) - home.options.durability.n + 1
    if len(voices) + 1 < needed and not force:
        raise errors.Mismatch(_too_few(home, era, [part.name, *voices], needed))
    if not part.fence:
        part = fencing.write_fence(home, part)  # killed from here on, it takes nothing more of the old one
    began = eras.after(era, part, admission.new_id(), mine.end)
    return eras.with_era(eras.with_part(home.journal.changed, None), began)


def _part(home: Directory, *, force: bool) -> Part:
    """What this one is. It may be promoted if it has not given its receipt, or by *force*."""
    part = fencing.standing(home, "promote")
    if part.given and not force:
        raise errors.Fenced(
            f"cannot promote {home.path}: it has given its receipt to another follower, which may be promoted by it; "
            "nothing was changed"
        )
    return part


def _refuse_useless(home: Directory, era: Era, receipt: Receipt, mine: Receipt) -> None:
    fencing.refuse_foreign(home, era, receipt, "promote")
    if receipt.name == mine.name:
        raise errors.Mismatch(
            f"cannot promote {home.path}: a receipt is of another follower of its own name; nothing was changed"
        )
    receipts.refuse_other_history(home, receipt, mine)
    if receipt.given != mine.identity:
        whom = "another follower" if receipt.given else "nobody"
        raise errors.Mismatch(
            f"cannot promote {home.path}: {receipt.name!r} has given its receipt to {whom}. There, `shmq fence` with "
            f"the receipt of this one gives it; nothing was changed"
        )


def _too_few(home: Directory, era: Era, names: list[str], needed: int) -> str:
    others = [name for name in era.followers if name not in names]
    return (
        f"cannot promote {home.path}: {needed} of its followers {', '.join(era.followers)} are to be fenced, and "
        f"these are: {', '.join(names)}. Fence {needed - len(names)} of {', '.join(others)} with the receipt of "
        "this one, and give what that prints. With force, what was acknowledged and only they have is lost. Nothing "
        "was changed"
    )


def _refuse_other_time(home: Directory) -> None:
    """Where times here are not what they are in the other queue, only a person knows what that means."""
    try:
        ahead_ns, at_ns = records.read_record(home, home.fd, UPSTREAM, home.path)
    except FileNotFoundError:
        return  # it was made, and the two have not talked
    if abs(ahead_ns) > _APART_NS:
        which = "ahead of" if ahead_ns > 0 else "behind"
        when = datetime.datetime.fromtimestamp(at_ns // 1_000_000_000, datetime.UTC)
        raise errors.Mismatch(
            f"cannot promote {home.path}: the clock of its source was {abs(ahead_ns) / 1e9:,.1f} s {which} the one "
            f"here at {when:%Y-%m-%d %H:%M:%S} UTC, so a ttl or an age would be counted wrong. Set the clock and "
            "replicate once more, or say clock_ok; nothing was changed"
        )

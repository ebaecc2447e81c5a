"""
Which part a queue has where queues are replicated, as its journal says: it follows another one, or it is fenced since
one that followed it was promoted. Most have none.
"""

from __future__ import annotations

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from shmq.storage.directory import Directory

    Role: TypeAlias = Literal["follower", "fenced", "promoted"]


def of(journal: _native.Journal) -> Role | None:
    """
    The part that this journal gives its queue: "follower", of another queue; "fenced", since one that followed it was
    promoted; "promoted", once a follower; None for all others. One that was promoted and fenced later is fenced.
    """
    if journal.flags & _native.JOURNAL_FOLLOWER:
        return "follower"
    if journal.flags & _native.JOURNAL_FENCED:
        return "fenced"
    return "promoted" if journal.flags & _native.JOURNAL_PROMOTED else None


def refuse(home: Directory, what: str, *, taking: bool = False) -> None:
    """
    Refuse *what*, which changes something, where only the queue that is followed may have it changed.

    *taking*: a fenced queue lets it be: what is there can be taken.

    Raises:
        Fenced: this queue follows another one, or is fenced.
    """
    if not home.journal.flags & (_native.JOURNAL_FOLLOWER | _native.JOURNAL_FENCED):
        return
    flags = home.read_journal().flags  # it may have been promoted since
    if flags & _native.JOURNAL_FOLLOWER:
        raise errors.Fenced(
            f"cannot {what}: {home.path} follows another queue, and is for readers; do it there, or promote this one"
        )
    if flags & _native.JOURNAL_FENCED and not taking:
        raise errors.Fenced(
            f"cannot {what}: {home.path} is fenced, since a queue that followed it was promoted; do it there. What is "
            "here can be read and taken"
        )

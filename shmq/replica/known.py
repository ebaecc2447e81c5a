"""Which followers count for a queue whose puts wait for them: those of its list, each the one that it was first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq import errors
from shmq.storage import eras

if TYPE_CHECKING:
    from shmq.replica.pieces import Answer
    from shmq.storage.directory import Directory


def refuse_unlisted(home: Directory, name: str, keep: int | None) -> None:
    """
    Refuse a follower that no put waits for, in a queue whose puts wait for some; and to give up one that they wait for.

    Raises:
        Mismatch: it is not of the list; or it is to be given up when it lacks too much.
    """
    durability = home.options.durability
    if durability.kind != "replicated":
        return
    if name not in durability.followers:
        raise errors.Mismatch(
            f"cannot replicate {home.path} to {name!r}: its puts wait for {', '.join(durability.followers)}, and only "
            "a promotion changes that list; nothing was changed"
        )
    if keep is not None:
        raise errors.Mismatch(
            f"cannot replicate {home.path} to {name!r} and keep {keep:,} bytes: its puts wait for that follower, which "
            "is never given up; leave that out. Nothing was changed"
        )


def refuse_another(home: Directory, name: str, answer: Answer, mark: int) -> None:
    """
    Refuse whoever has not what the follower of that *name* has promised. What that one may have signed since is not
    known here: so only a promotion, which begins a list anew, lets another one in.

    Raises:
        Fenced: it was made anew, or is an older copy of itself.
    """
    if answer.fenced:
        return  # it has promised nothing, and is another one from then
    known = eras.era_in(home.made_with.durability, home.read_journal().changed).known.get(name)
    if not answer.identity:
        raise errors.Fenced(
            f"cannot replicate {home.path} to {name!r}: the program there knows nothing of puts that wait for it"
        )
    if known is not None and known != answer.identity:
        raise errors.Fenced(
            f"cannot replicate {home.path} to {name!r}: another follower of that name has promised to have what was "
            "put, and this one was made anew. A promotion begins the list anew; until then puts wait for the others. "
            "Nothing was changed"
        )
    end = answer.chain[-1][1] + answer.ordinal if answer.chain else 0
    if end < mark:
        raise errors.Fenced(
            f"cannot replicate {home.path} to {name!r}: it has said to have all before index {mark:,} on its disk, and "
            f"ends at {end:,}: it is an older copy of itself. A promotion begins the list anew; nothing was changed"
        )


def refuse_reset(home: Directory, name: str, answer: Answer) -> None:
    """
    Refuse to have a follower set aside what it has, where that is what it has promised to have.

    Raises:
        Fenced: puts have waited for it.
    """
    known = eras.era_in(home.made_with.durability, home.read_journal().changed).known
    if name in known and not answer.fenced:
        raise errors.Fenced(
            f"cannot reset {name!r} from {home.path}: it has promised to have what was put, and has another history, "
            "or lacks what was retired: one of the two is an older copy. A promotion begins the list anew; nothing was "
            "changed"
        )


def know(home: Directory, name: str, identity: str) -> None:
    """Have it on the disk which follower that name is, before the first of its marks counts."""
    with home.admin():
        journal = home.read_journal()
        era = eras.era_in(home.made_with.durability, journal.changed)
        if era.known.get(name) != identity:
            era = era._replace(known={**era.known, name: identity})
            home.write_journal(journal._replace(changed=eras.with_era(journal.changed, era)))

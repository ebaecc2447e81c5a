"""
Whom a follower follows, where puts wait for it: by the era of the other queue, by its own name, and by its fence.

The era of the other one is on the disk here before a mark is: so whoever promotes this one knows the list by which that
mark was counted (R15).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shmq import errors
from shmq.options import Options
from shmq.storage import eras, small_json

if TYPE_CHECKING:
    from shmq.options import Durability
    from shmq.replica.pieces import Hello
    from shmq.roles import Role
    from shmq.storage.directory import Directory
    from shmq.storage.eras import Era, Part

ID_BYTES = 8


def new_id() -> str:
    """Of a follower, a fence or an era."""
    return os.urandom(ID_BYTES).hex()


def _durability_in(hello: Hello) -> Durability:
    return Options.from_json(small_json.loads(hello.options)).durability


def admit(home: Directory, hello: Hello, role: Role | None) -> None:
    """
    Refuse a queue that is not to be followed.

    Raises:
        Mismatch: it is of another era, or calls this follower by another name.
        Fenced: this follower takes nothing of it.
    """
    durability = home.made_with.durability
    if durability.kind != "replicated" or role is None:
        return
    journal = home.read_journal()
    here = eras.era_in(durability, journal.changed)
    there = eras.era_in(_durability_in(hello), hello.state.changed)
    part = eras.part_of(journal)
    _refuse_era(home, here, there, role, part)
    if part is None:
        return
    if part.name != hello.name:
        raise errors.Mismatch(
            f"cannot follow into {home.path}: it is the follower {part.name!r}, and came to be {hello.name!r}; one "
            "follower counts once. Nothing was changed"
        )
    _refuse_fenced(home, part, here, there)


def _refuse_era(home: Directory, here: Era, there: Era, role: Role, part: Part | None) -> None:
    if role == "promoted":
        if there.number > here.number:
            raise errors.Mismatch(
                f"cannot follow into {home.path}: it was promoted, and the other queue was later. Replicate once from "
                "here to there, which fences this one; then it may rejoin. Nothing was changed"
            )
        return
    differs = part is not None and there.number == here.number and there.id != here.id
    if there.number < here.number or differs:
        raise errors.Mismatch(
            f"cannot follow into {home.path}: it has followed a queue that was promoted since, or by somebody else; "
            "nothing was changed"
        )


def _refuse_fenced(home: Directory, part: Part, here: Era, there: Era) -> None:
    if part.fence and there.number == here.number:
        raise errors.Fenced(
            f"cannot follow into {home.path}: it is fenced, and takes nothing until it follows one that was promoted; "
            "nothing was changed"
        )
    if part.given and part.given not in there.promoted:
        raise errors.Fenced(
            f"cannot follow into {home.path}: its receipt was given to another follower than to the one that was "
            "promoted; nothing was changed"
        )


def begin_era(home: Directory, hello: Hello) -> str:
    """
    Have the era of the queue that is followed on the disk, and which follower this one is, which is returned: before
    the other one is told. What fenced this one in an earlier era is over.
    """
    durability = home.made_with.durability
    if durability.kind != "replicated":
        return ""
    there = eras.era_in(_durability_in(hello), hello.state.changed)
    with home.admin():
        journal = home.read_journal()
        known, changed = eras.part_of(journal), journal.changed
        part, here = known or eras.Part(hello.name, new_id()), eras.era_in(durability, changed)
        if there.number > here.number or (known is None and there.id != here.id):
            part, changed = part._replace(begun=False, fence="", given=""), eras.with_era(changed, there)
        changed = eras.with_part(changed, part)
        if changed != journal.changed:
            home.write_journal(journal._replace(changed=changed))
    return part.id


def take_part(home: Directory, end: int) -> bool:
    """
    Have it on the disk that this follower has begun, if it has all up to where its era begins: with what it has before
    *end* on its disk, and admitted by the other one. Whether it has, or nothing waits for it.
    """
    part = eras.part_of(home.read_journal())
    if part is not None and not part.begun:
        if end < eras.era_of(home).base:
            return False
        with home.admin():
            changed = eras.with_part(home.read_journal().changed, part._replace(begun=True))
            home.write_journal(home.journal._replace(changed=changed))
    return True

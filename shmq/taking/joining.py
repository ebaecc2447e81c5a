"""Joining a group: making it where it is not there, and agreeing with what it was made with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shmq import _native, errors
from shmq.storage import ring as rings
from shmq.storage.paths import CONSUMERS
from shmq.taking import group_options, names
from shmq.taking.dead import check_paths

if TYPE_CHECKING:
    import datetime

    from shmq.session import Session
    from shmq.storage.directory import Directory


class Asked(NamedTuple):
    """What a member was opened with."""

    name: str
    ack: str | None
    options: dict[str, Any]
    window: int | None


def make(session: Session, asked: Asked, start: str | float | datetime.datetime) -> None:
    """Make the group, unless it is there."""
    check_paths(session, asked.name, asked.options, named_here=asked.options)
    if asked.name not in session.home.consumer_names():
        with session.home.admin():
            if asked.name not in session.home.consumer_names():
                group_options.make(
                    session,
                    asked.name,
                    explicit=asked.ack == "explicit",
                    start=start,
                    options=asked.options,
                    window=asked.window,
                )


def open_name(home: Directory, name: str) -> tuple[_native.Fd, _native.Checkpoint]:
    """
    The name's checkpoint, and what it was opened by.

    Raises:
        Mismatch: it is no group.
    """
    fd, size = home.open(home.consumers, f"{name}.checkpoint", writable=True)
    try:
        path = f"{home.path}/{CONSUMERS}/{name}.checkpoint"
        checkpoint = _native.Checkpoint(fd, size, home.queue_id, name, path)
        if not checkpoint.group:
            raise errors.Mismatch(
                f"cannot open consumer {name!r} of {home.path} as a group: it was made without group=True, for one "
                "process at a time; use another name"
            )
    except BaseException:
        fd.close()
        raise
    return fd, checkpoint


def agreed(session: Session, asked: Asked, checkpoint: _native.Checkpoint) -> dict[str, Any]:
    """
    What the group was made with.

    Raises:
        Mismatch: the member was opened with something else.
        Corrupt: what is stored means nothing.
        Unsafe: a path that is stored leads away from beside the queue, and was not named here.
    """
    path, name = session.path, asked.name
    stored = rings.options(session.home, name)
    try:
        group_options.check_order(group_options.check_options(stored), explicit=checkpoint.explicit)
    except (ValueError, TypeError) as problem:
        raise errors.Corrupt(
            f"cannot open {path}/{CONSUMERS}/{name}.group: {problem}; drop_consumer({name!r}) removes it"
        ) from None
    stored["ack"] = "explicit" if checkpoint.explicit else "auto"
    given = asked.options if asked.ack is None else {**asked.options, "ack": asked.ack}
    for option, mine in given.items():
        if stored.get(option) != mine:
            raise errors.Mismatch(
                f"cannot join group {name!r} of {path} with {option}={mine!r}: it was made with "
                f"{option}={stored.get(option)!r}; leave the option out, or use another name"
            )
    check_paths(session, name, stored, named_here=asked.options)
    return stored


def share(home: Directory, name: str, lock: _native.Lock, fd: int) -> None:
    """
    Hold the name together with the other members.

    Raises:
        Busy: it is being dropped, renamed or moved.
        NotFound: it was dropped meanwhile.
    """
    if not names.patiently(home, lock.share):
        raise errors.Busy(f"group {name!r} of {home.path} is being dropped, renamed or moved")
    names.check_not_dropped(home, name, fd, "group")

"""Joining a group, or opening a lone consumer: making it where it is not there, and agreeing with what it is."""

from __future__ import annotations

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import ring as rings
from shmq.storage.paths import CONSUMERS
from shmq.storage.subscriptions import EVERYTHING, Subscription
from shmq.taking import group_options, names
from shmq.taking.dead import check_paths

if TYPE_CHECKING:
    import datetime
    from typing import Any

    from shmq.session import Session
    from shmq.storage.directory import Directory


class Asked(NamedTuple):
    """What a member was opened with; *lone*: as the only one."""

    name: str
    ack: str | None
    options: dict[str, Any]
    window: int | None
    lone: bool = False
    hold: bool | str | None = None
    subscription: Subscription = EVERYTHING

    @property
    def kind(self) -> int:
        """What its checkpoint says of it."""
        return _native.CHECKPOINT_LONE if self.lone else _native.CHECKPOINT_GROUP

    @property
    def called(self) -> str:
        """The name, as messages to people say it."""
        return f"{'consumer' if self.lone else 'group'} {self.name!r}"

    @property
    def member(self) -> str:
        """Who has it open, likewise."""
        return self.called if self.lone else f"group consumer {self.name!r}"


def make(session: Session, asked: Asked, start: str | float | datetime.datetime) -> _native.Lock | None:
    """Make the name, unless it is there. What it returns holds it already."""
    check_paths(session, asked.name, asked.options, named_here=asked.options)
    names.let_go(session.home, asked.name)
    if not session.home.has_consumer(asked.name):
        with session.home.admin():
            if not session.home.has_consumer(asked.name):
                return group_options.make(
                    session,
                    asked.name,
                    explicit=asked.ack == "explicit",
                    start=start,
                    options=asked.options,
                    window=asked.window,
                    kind=asked.kind,
                    hold=asked.hold or False,
                    subscription=asked.subscription,
                )
    return None


def open_name(home: Directory, asked: Asked) -> tuple[_native.Fd, _native.Checkpoint]:
    """
    The name's checkpoint, and what it was opened by.

    Raises:
        Mismatch: it was made in another way.
    """
    fd, size = home.open(home.consumers, f"{asked.name}.checkpoint", writable=True)
    try:
        path = f"{home.path}/{CONSUMERS}/{asked.name}.checkpoint"
        checkpoint = _native.Checkpoint(fd, size, home.queue_id, asked.name, path)
        if checkpoint.kind != asked.kind:
            raise _other_kind(home, asked, checkpoint)
    except BaseException:
        fd.close()
        raise
    return fd, checkpoint


def _other_kind(home: Directory, asked: Asked, checkpoint: _native.Checkpoint) -> errors.Mismatch:
    if not asked.lone:
        return errors.Mismatch(
            f"cannot open consumer {asked.name!r} of {home.path} as a group: it was made without group=True, for one "
            "process at a time; use another name"
        )
    return is_no_plain_name(home, asked.name, asked.ack, checkpoint)


def is_no_plain_name(home: Directory, name: str, asked: str | None, checkpoint: _native.Checkpoint) -> errors.Mismatch:
    """Why *name* cannot be opened for this process alone, with *asked* as its way to acknowledge."""
    tried = f"cannot open consumer {name!r} of {home.path}"
    if checkpoint.kind == _native.CHECKPOINT_GROUP:
        return errors.Mismatch(
            f"{tried} for this process alone: it is a group; open it with group=True, or use another name"
        )
    stored = "explicit" if checkpoint.explicit else "auto"
    if checkpoint.explicit and not checkpoint.ring:
        return errors.Mismatch(
            f"{tried}: an earlier version of shmq made it, without a ring. Its place is index {checkpoint.head}: "
            f'drop_consumer({name!r}) and consumer({name!r}, ack="explicit", start={checkpoint.head}) go on there'
        )
    return errors.Mismatch(
        f"{tried} with ack={asked!r}: it was made with ack={stored!r}; leave it out, or use another name"
    )


def agreed(session: Session, asked: Asked, checkpoint: _native.Checkpoint) -> dict[str, Any]:
    """
    What the name was made with.

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
                f"cannot open {asked.called} of {path} with {option}={mine!r}: it was "
                f"made with {option}={stored.get(option)!r}; leave the option out, or use another name"
            )
    check_paths(session, name, stored, named_here=asked.options)
    return stored


def enter(
    home: Directory, asked: Asked, checkpoint: _native.Checkpoint, lock: _native.Lock, fd: int, control: _native.Control
) -> None:
    """
    Hold the name, together with the other members of a group.

    Raises:
        Busy: somebody has it alone, or it is being dropped, renamed or moved.
        NotFound: it was dropped meanwhile.
    """
    if asked.lone:
        names.hold_alone(home, asked.name, checkpoint, lock, control)
    elif not names.patiently(home, lock.share):
        raise errors.Busy(f"{asked.called} of {home.path} is being dropped, renamed or moved")
    names.check_not_dropped(home, asked.name, fd, "consumer" if asked.lone else "group")

"""The verbs that look: `read`, `state`, `consumers`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from shmq.formats import _files, _follow
from shmq.formats.kestrel.folder import at, children, queue_in
from shmq.formats.kestrel.follow import Tail
from shmq.formats.kestrel.journal import Rules
from shmq.formats.kestrel.queue import Journals, place_of_child
from shmq.formats.kestrel.records import NAME
from shmq.formats.model import Entry, Place, State

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


def read(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    consumer: str | None = None,
    follow: bool = False,
    as_program: bool = False,
    timeout: float | None = None,
    strict: bool = False,
    state_dump: bool | None = None,
    now_ns: int | None = None,
    max_payload: int = _files.MAX_PAYLOAD,
) -> Iterator[Entry]:
    """
    Replay the journal of *queue* in the folder *path* and deliver what is in it, oldest first.

    *consumer* is a fan-out child, which is the queue `<queue>+<consumer>`.

    Open transactions come first, lowest id first (extra["xid"]), as recovery puts them back. Expired items are
    delivered like any other, with their `expires_ns`; given *now_ns*, those that expired before it are dropped, as
    the program drops them when they reach the head. The journal is walked twice, so that memory does not grow with
    the queue: once to know what is left, once to deliver it.

    A file with damage is replayed up to the damage, then the next file; *strict* raises Corrupt instead, before the
    first item. *state_dump* says what opcode 8 means: True the old STATE_DUMP, False CONTINUE, None (default) what
    the bytes behind it fit. *follow* goes on with every item that is added, also when it is taken again at once, at
    most *timeout* seconds for each; it goes through rotations and rewrites. A payload above *max_payload* bytes
    raises TooLarge.

    Raises:
        NotFound: no such folder or queue.
        BadFormat: *path* is no directory, or holds several queues and none was named.
    """
    folder, queue = at(path, queue)
    if consumer is not None:
        queue = queue_in(folder, f"{queue}+{consumer}")
    rules = Rules(as_program, False if as_program else state_dump, strict, max_payload)
    entries = (
        _follow.follow(Tail(folder, queue, rules), timeout) if follow else _follow.once(Journals(folder, queue, rules))
    )
    if now_ns is None:
        return entries
    return (entry for entry in entries if entry.expires_ns is None or entry.expires_ns >= now_ns)


def lists(path: str | os.PathLike[str], queue: str | None = None, *, strict: bool = False) -> Iterator[list[Entry]]:
    """Deliver what `read` delivers, in lists of what was read at once."""
    return _follow.in_lists(Journals(*at(path, queue), Rules(strict=strict)))


def state(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    as_program: bool = False,
    state_dump: bool | None = None,
) -> State:
    """
    Replay *queue* and return what its files say.

    `open` has the transactions that were open at the end. A queue has one nameless set of readers; its fan-out
    children are its consumers: {child: (n, ())} says that the child has seen the first n of the entries that `read`
    delivers, and n is None if the child holds items that its parent no longer has (read it as a queue of its own).
    """
    folder, queue = at(path, queue)
    rules = Rules(as_program, False if as_program else state_dump)
    with closing(Journals(folder, queue, rules)) as whole:
        whole.replay()
        opened = dict(whole.opened())
        count = whole.live()
        consumers = {}
        for name in children(folder, queue):
            with closing(Journals(folder, f"{queue}+{name}", Rules())) as child:
                child.replay()
                consumers[name] = place_of_child(whole, child)
        return State(NAME, queue, consumers, opened, whole.problems, count, None, None, whole.names())


def consumers(path: str | os.PathLike[str], queue: str | None = None) -> dict[str, Place]:
    """Return {child: (n, ())} as `state` does; without a walk when there is no child."""
    folder, queue = at(path, queue)
    return state(folder, queue).consumers if children(folder, queue) else {}

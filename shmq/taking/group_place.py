"""Where a group stands, message by message: for whoever brings it to another queue, or looks into it."""

from __future__ import annotations

import dataclasses

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import ring as rings
from shmq.storage.paths import check_consumer_name

if TYPE_CHECKING:
    from shmq.session import Session


@dataclasses.dataclass(frozen=True)
class GroupPlace:
    """
    Where a group stands, message by message.

    Attributes:
        head: the first index that is not finished, parked messages included; everything below it is.
        done: the indexes above it that are finished, ascending, wherever the first one lies.
        open: those that somebody has and has not finished, or moves to another queue.
        parked: those that wait outside the window: for their time, or for one before them of their key.
    """

    head: int
    done: tuple[int, ...]
    open: tuple[int, ...]
    parked: tuple[int, ...] = ()


def of(session: Session, name: str) -> GroupPlace:
    """As `Queue.group_place`."""
    check_consumer_name(name)
    session.joined()
    try:
        checkpoint = session.home.checkpoint(name)
    except FileNotFoundError:
        raise errors.NotFound(f"{session.path} has no consumer {name!r}") from None
    if not checkpoint.ring:
        raise errors.Mismatch(f"consumer {name!r} of {session.path} is not a group: what is below its head is finished")
    ring = rings.look(session.home, name, checkpoint)
    live, states = ring.states()
    first, end = session.first_index, session.next_index
    if live > end:
        raise errors.Corrupt(f"the head of group {name!r} of {session.path} is {live}, and the queue ends before {end}")
    aside = dict(ring.parked())  # behind the window: messages move from there to here only
    taken = (_native.RING_CLAIMED, _native.RING_MOVING, _native.RING_FORWARDING)
    done, opened = set(), {index for index, held in aside.items() if held}
    for index, state in enumerate(states, live):
        if state == _native.RING_DONE or (state == _native.RING_PARKED and index not in aside):
            done.add(index)
        elif state in taken:
            opened.add(index)
    head = min(aside, default=live)
    if head >= live:
        head = next((index for index in range(live, live + len(states)) if index not in done), live + len(states))
    finished = [*(index for index in range(max(head, first), live) if index not in aside), *sorted(done)]
    return GroupPlace(
        head,
        tuple(index for index in finished if index > head),
        tuple(sorted(opened)),
        tuple(sorted(index for index, held in aside.items() if not held)),
    )

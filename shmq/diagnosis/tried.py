"""Where to look: at one queue, or at every queue below a directory of shards, of a flow, of an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import TYPE_CHECKING, TypeVar

from shmq import given
from shmq.diagnosis import causes, facts, stack
from shmq.diagnosis.finding import LEVELS, Finding
from shmq.errors import NotFound
from shmq.queue import Queue
from shmq.session import Session
from shmq.storage.paths import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")
_PAUSE = 0.5
"""Seconds between the two looks: what did not move meanwhile is said to stand."""
_DEEP = 3
_STACKS = 4
"""So many processes are asked for their stacks."""


def why(queue: Queue[object] | str | os.PathLike[str], *, stacks: bool = False) -> list[Finding]:
    """
    Why *queue* is stuck or slow: what holds it up and what to do about it, the worst first; a note when nothing does.

    It looks twice, half a second apart, changes nothing, and waits for no lock, so a queue whose users are stopped
    answers too.

    Args:
        queue: an open queue, or where one is; also a directory that has queues below it, as of shards or of a flow.
        stacks: ask py-spy, where it is installed, what each process that holds something up is doing; in the facts,
            as "stack".

    Raises:
        NotFound: there is no queue.
        Corrupt, BadFormat, Unsafe: it cannot be read.
    """
    place = queue.place if isinstance(queue, Queue) else given.path("queue", queue)
    stacks = given.flag("stacks", stacks)
    below = [] if place.startswith("shm:") or os.path.lexists(f"{place}/{QUEUE}") else list(_below(place, _DEEP))
    with contextlib.ExitStack() as opened:
        found = [each for one in _tried(below, opened) for each in one] if below else []
        if not found:  # there is none below, or all of them have been deleted
            (found,) = _tried([place], opened, deleted=())
    found.sort(key=lambda each: LEVELS.index(each.level))
    return _with_stacks(found) if stacks else found


def _tried(
    places: list[str],
    opened: contextlib.ExitStack,
    deleted: tuple[type[Exception], ...] = (NotFound, FileNotFoundError),
) -> list[list[Finding]]:
    """What is found at each queue. One that fails with *deleted* and is not there any more is left out."""

    def unless_gone(place: str, call: Callable[..., _T], *words: object) -> _T | None:
        try:
            return call(*words)
        except deleted:
            if os.path.lexists(f"{place}/{QUEUE}"):
                raise
            return None

    sessions = [unless_gone(each, lambda place: opened.enter_context(_opened(place)), each) for each in places]
    before = [(each, unless_gone(each.place, facts.look, each)) for each in sessions if each is not None]
    time.sleep(_PAUSE)
    looks = [(each, first, unless_gone(each.place, facts.look, each)) for each, first in before if first is not None]
    found = [
        unless_gone(each.place, causes.findings, each, first, now) for each, first, now in looks if now is not None
    ]
    return [each for each in found if each is not None]


def _opened(place: str) -> contextlib.AbstractContextManager[Session]:
    return contextlib.closing(Session(place, create=False, read_only=True, trusted=True))


def _below(place: str, deep: int) -> Iterator[str]:
    """The queues below that directory."""
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(place)):
            path = os.path.join(place, name)
            if os.path.islink(path) or not os.path.isdir(path) or ".making-" in name:
                continue
            if os.path.lexists(os.path.join(path, QUEUE)):
                yield path
            elif deep > 1:
                yield from _below(path, deep - 1)


def _with_stacks(found: list[Finding]) -> list[Finding]:
    pids = list(dict.fromkeys(each.facts["pid"] for each in found if _is_asked(each)))[:_STACKS]
    stacks = {pid: text for pid in pids if (text := stack.of_process(pid)) is not None}
    return [
        dataclasses.replace(each, facts={**each.facts, "stack": stacks[each.facts["pid"]]})
        if _is_asked(each) and each.facts["pid"] in stacks
        else each
        for each in found
    ]


def _is_asked(finding: Finding) -> bool:
    return finding.level != "note" and finding.facts.get("state") in {"runs", "stopped"}

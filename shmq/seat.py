"""The part of a membership (membership.py) that other modules need, as a protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from shmq import _native
    from shmq.storage.mapped import Mapped


class Seat(Protocol):
    """
    One process at one queue.

    Attributes:
        member: for calls of the core.
        control: the mapped control page.
        mapped: chunks kept for random access, by all handles of this process.
        missing: what this process knows of the indexes that have no message (backlog.py), once it has looked.
    """

    member: _native.Member
    control: _native.Control
    mapped: Mapped
    missing: object

    def anybody_else(self) -> bool:
        """Whether another process sits here."""

    def sleep(self, seen: int, deadline_ns: int) -> int:
        """Wait for the bell, with a watcher on everybody's life."""

    def retain(self, handle: object) -> None:
        """One handle more. Whoever calls has one, or the lock."""

    def leave(self, handle: object) -> None:
        """Without that handle; when there is none (any more), the seat is given back. It can be repeated."""

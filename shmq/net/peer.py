"""Who is at the other end of a connection: what it may do, and what it costs just now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Rights(Protocol):
    """What somebody may do."""

    def may(self, verb: str, queue: str) -> bool:
        """Say whether *verb* may be done with the queue of that name, now."""


class Peer:
    """
    One peer. All of it is used in the loop.

    A session calls `begin` for each request that it takes and `end` when that is answered: by that the connection knows
    when to read no more. `room` is set while the peer reads what it is sent; a session awaits it before it makes a
    reply.
    """

    def __init__(self, name: str, rights: Rights | None, changed: Callable[[], None]) -> None:
        """*changed* is called when a request has ended; *rights* are None until it has shown a token."""
        self.name = name
        self.rights = rights
        self.requests = 0
        self.memory = 0
        self.room = asyncio.Event()
        self.room.set()
        self._changed = changed

    def may(self, verb: str, queue: str) -> bool:
        """Say whether it may do that."""
        return self.rights is not None and self.rights.may(verb, queue)

    def begin(self, nbytes: int) -> None:
        """One more request, of so many bytes, is under way."""
        self.requests += 1
        self.memory += nbytes

    def end(self, nbytes: int) -> None:
        """It is answered, or will not be."""
        self.requests -= 1
        self.memory -= nbytes
        self._changed()

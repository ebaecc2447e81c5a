"""
A queue that comes to a hub by a link: checked against the client's name before anything of the disk is looked at.

A client learns of its own queues alone. For every other name the answer is the same, whether something is there or not;
and what goes wrong with its own is told without the hub's paths.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.hub.clients import fits
from shmq.hub.dense import Dense
from shmq.replica.follower import Follower
from shmq.replica.link import Broken, Link, to_follower
from shmq.replica.pieces import Refused, State

if TYPE_CHECKING:
    import socket

    from shmq.hub.clients import Client
    from shmq.replica.pieces import Answer, Back, Hello, Mark, There

PRIVATE = ".hub"
"""The directory of a root that is the hub's own. No queue's name begins with a dot."""
ASIDE = f"{PRIVATE}/queues"
"""Where followers lie whose journals have their places."""
_PATIENCE = 10.0
"""Seconds for the link before to be over; what it still syncs takes its time."""
_SHOWN = 100


class Way(Link):
    """A link from a client. What is refused says nothing of the hub's disk."""

    def __init__(self, sock: socket.socket, root: str) -> None:
        """Paths below *root* are told from there on."""
        super().__init__(sock, to_follower)
        self._root = root

    def send(self, piece: There | Back) -> None:
        """See `Link`."""
        if isinstance(piece, Refused):
            text = piece.text.replace(f"{self._root}{os.sep}", "").replace(self._root, "the hub")
            piece = Refused(piece.error, text)
        super().send(piece)


class _Turn:
    """One link's time with one queue."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.over = threading.Event()


class Turns:
    """
    Which link each queue comes by. The last one that came counts: the one before is of a client that was killed, or
    whose machine is gone, or else somebody uses one token twice.
    """

    def __init__(self) -> None:
        """Nobody is here."""
        self._lock = threading.Lock()
        self._held: dict[str, _Turn] = {}

    def begin(self, name: str, link: Link) -> _Turn:
        """
        Have that queue come by *link*, and by no other.

        Raises:
            Broken: the one before does not end; the client tries again.
        """
        until = time.monotonic() + _PATIENCE
        while True:
            with self._lock:
                before = self._held.get(name)
                if before is None:
                    turn = self._held[name] = _Turn(link)
                    return turn
            before.link.end()
            if not before.over.wait(until - time.monotonic()):
                raise Broken(f"{name} still comes by another link")

    def end(self, name: str, turn: _Turn) -> None:
        """It is over: whoever waits may begin."""
        with self._lock:
            self._held.pop(name, None)
        turn.over.set()


class Arrival(Follower):
    """A follower in a hub. What it is called is what the client says, if that is a name of its own."""

    def __init__(self, root: str, client: Client, link: Link, turns: Turns, *, as_sej: bool = False) -> None:
        """It is opened by `answer`. With *as_sej* it lies aside, and where it would be is a journal of sej's."""
        super().__init__(root)
        self._as_sej = as_sej
        self._dense: Dense | None = None
        self._root, self._client, self._link, self._turns = root, client, link, turns
        self._turn: tuple[str, _Turn] | None = None

    def answer(self, hello: Hello) -> Answer:
        """
        Open the queue that is meant; see `Follower`.

        Raises:
            NotFound: it is none of this client's.
        """
        self._refuse_foreign(hello.name)
        self._turn = hello.name, self._turns.begin(hello.name, self._link)
        place = os.path.join(self._root, hello.name)
        self.path = os.path.join(self._root, ASIDE, hello.name) if self._as_sej else place
        answer = super().answer(hello)
        if self._as_sej:
            self._dense = Dense(Path(place), self.path)
            self._dense.catch_up()  # whoever was killed may not have come so far
        return answer

    def flush(self, *, mark: bool = False) -> Mark | None:
        """See `Follower`. The client is told of nothing that the journal has not."""
        done = super().flush(mark=mark)
        if self._dense is not None:
            self._dense.catch_up()
        return done

    def take(self, piece: There) -> None:
        """
        See `Follower`.

        Raises:
            NotFound: the client's time is over.
        """
        if time.time() >= self._client.until:
            raise _not_found(os.path.basename(self.path))
        if isinstance(piece, State):
            self.flush()  # what it has go is in the journal
        super().take(piece)

    def _refuse_foreign(self, name: str) -> None:
        if not fits(self._client.name, name) or time.time() >= self._client.until:
            raise _not_found(name)

    def close(self) -> None:
        """See `Follower`."""
        try:
            super().close()
        finally:
            if self._dense is not None:
                self._dense.close()
            turn: Any = self._turn
            if turn is not None:
                self._turn = None
                self._turns.end(*turn)


def _not_found(name: str) -> errors.NotFound:
    """The one answer."""
    return errors.NotFound(f"there is no queue {name[:_SHOWN]!r} for you at this hub; a client's begin with its name")

"""What a client has open in this process; a forked child has nothing, and opens its own at first use."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

import shmq
from shmq.rpc.cancels import Giving

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.rpc.inbox import Inbox
    from shmq.rpc.places import Place

_all: weakref.WeakSet[Link] = weakref.WeakSet()


class Link:
    """
    An inbox, once it is needed, and the way to say that a call is given up.

    Attributes:
        inbox: it; None before, in a child, and after `close`.
        giving: that way.
    """

    def __init__(self, make: Callable[[], Inbox], place: Place) -> None:
        """*make* opens it."""
        self._make = make
        self._place = place
        self.closed = False
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """Nothing is open in this process, and no thread is at it."""
        self.inbox: Inbox | None = None
        self.giving = Giving(self._place)
        self._lock = threading.Lock()

    def open(self) -> Inbox:
        """
        The inbox.

        Raises:
            Closed: the client was closed.
        """
        with self._lock:
            if self.closed:
                raise shmq.Closed(f"the client of {self._place.path} was closed; make another one")
            if self.inbox is None:
                self.inbox = self._make()
            return self.inbox

    def close(self) -> None:
        """Have none any more."""
        with self._lock:
            self.closed = True
            inbox, self.inbox = self.inbox, None
        if inbox is not None:
            inbox.close()
        self.giving.close()


def _begin_in_child() -> None:
    for link in list(_all):
        link.begin()


os.register_at_fork(after_in_child=_begin_in_child)

"""One call that waits for its reply, and how its thread sleeps meanwhile."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shmq.rpc import wire


class Waiter:
    """
    One call that waits.

    Attributes:
        reply: what came; None before.
        problem: why nothing will come.
    """

    __slots__ = ("bell", "problem", "reply")

    def __init__(self) -> None:
        """Nothing came yet, and nobody sleeps for it."""
        self.reply: wire.Reply | None = None
        self.problem: Exception | None = None
        self.bell: threading.Lock | None = None

    def answer(self, reply: wire.Reply) -> None:
        """Its reply is here. The first one counts; it may be said twice."""
        if self.reply is None:
            self.reply = reply
        self.ring()

    def ring(self) -> None:
        """Wake its thread, if it sleeps."""
        bell = self.bell
        if bell is not None and bell.locked():
            with contextlib.suppress(RuntimeError):  # somebody else just did
                bell.release()

    def sleep(self, seconds: float) -> None:
        """Until it is rung, or for so long."""
        bell = self.bell or self.made_bell()
        if self.reply is None:  # else it came before there was a bell
            bell.acquire(timeout=seconds)

    def made_bell(self) -> threading.Lock:
        """What it sleeps by."""
        if self.bell is None:
            bell = threading.Lock()
            bell.acquire()
            self.bell = bell
        return self.bell

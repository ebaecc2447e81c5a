"""Trying again, with pauses that grow up to a bound; that it is necessary is said once, and so is that it is over."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

_FIRST, _LONGEST = 0.05, 5.0
_SAID_AFTER = 2
"""What the first new try mends is not worth a line."""


def tell(line: str) -> None:
    """Say something to whoever runs the bridge: a line on stderr."""
    print(f"shmq: {line}", file=sys.stderr, flush=True)  # noqa: T201  # it runs in a terminal, or under a supervisor


class Patience:
    """How often in a row something was tried in vain."""

    def __init__(self, what: str, stop: threading.Event) -> None:
        """*what* names the far end; a pause ends when *stop* is set."""
        self._what = what
        self._stop = stop
        self._tries = 0

    def wait(self, problem: Exception) -> None:
        """Something was tried in vain: pause."""
        self._tries += 1
        if self._tries == _SAID_AFTER:
            tell(f"{self._what}: {problem}; trying again until it works")
        self._stop.wait(min(_FIRST * 2 ** min(self._tries, 10), _LONGEST))

    def works(self) -> None:
        """It went through."""
        if self._tries >= _SAID_AFTER:
            tell(f"{self._what}: going on")
        self._tries = 0

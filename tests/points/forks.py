"""Children that are forked in the middle of a verb."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

from support import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Forks:
    """As `instead` of a `Round`: a child that lives on, holding whatever it inherited, until `ended`."""

    def __init__(self, work: Callable[[], object] = lambda: None) -> None:
        """*work* is what a child does at once, on its own."""
        self._work = work
        self._children: list[tuple[int, int]] = []

    def __call__(self) -> None:
        """Fork one."""
        read, write = os.pipe()
        child = start(self._live, read, write)
        os.close(read)
        self._children.append((child, write))

    def _live(self, read: int, write: int) -> None:
        os.close(write)
        sys.settrace(None)
        self._work()
        os.read(read, 1)  # until the parent is done with it

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """They end behind this block."""
        try:
            yield
        finally:
            children, self._children = self._children, []
            for child, write in children:
                os.close(write)
                assert os.waitpid(child, 0)[1] == 0, "what the child did"


def fork_and_die(say: Callable[[object], None]) -> None:
    """As `instead` of a `Round`: a child lives on, says its number and waits to be killed; this process is killed."""

    def live_on() -> None:
        say(os.getpid())
        while True:
            signal.pause()

    start(live_on)
    signal.pause()

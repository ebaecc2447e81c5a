"""A queue below a root, open for all that use it at the moment; and whether what is open is still what lies there."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.net import names

if TYPE_CHECKING:
    from collections.abc import Callable

    import shmq
    from shmq.net.log import Log

_EXISTS, _MARK = "queue.shmq", "control.shmq"


class Opened:
    """
    One queue, opened once.

    Attributes:
        name: what it is called.
        log: the queue as the RFC's services see it.
        queue: the same as a queue of ours; None of Chronicle's.
        users: how many hold it: then it is not closed.
        since: when the last of them let go, on the monotonic clock.
        gone: whether it was found that it is not there any more: moved, deleted, or another one in its place.
        closing: called when it is closed.
        leaving: called in the loop, once, when it is gone.
    """

    def __init__(self, name: str, path: str, make: Callable[[], tuple[Log, shmq.Queue[Any] | None]]) -> None:
        """
        Open what lies at *path* with *make*.

        Raises:
            NotFound: it is not there any more.
            Others: what *make* raises.
        """
        self.name = name
        self.users = 0
        self.since = time.monotonic()
        self.gone = False
        self.closing: list[Callable[[], object]] = []
        self.leaving: set[Callable[[], object]] = set()
        self._path = path
        self._is_ours = os.path.exists(os.path.join(path, _EXISTS))
        self._mark = os.path.join(path, _MARK) if self._is_ours else path
        with contextlib.ExitStack() as on_error:
            self._pin = self._pinned()
            on_error.callback(os.close, self._pin)
            info = os.fstat(self._pin)
            self._is = info.st_dev, info.st_ino
            self.log, self.queue = make()
            on_error.callback(self._let_go)
            if not self.is_there():  # another one came while it was opened
                raise names.not_found(name)
            on_error.pop_all()

    def _pinned(self) -> int:
        """A descriptor of the file that tells this queue from others: while it is open, no other has its number."""
        try:
            return os.open(self._mark, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise names.not_found(self.name) from None

    def is_there(self) -> bool:
        """Whether what is open is what lies under its name. Costs two looks at a path."""
        if self.gone:
            return False
        try:
            info = os.stat(self._mark, follow_symlinks=False)
            found = (info.st_dev, info.st_ino) == self._is
            if found and self._is_ours:
                os.stat(os.path.join(self._path, _EXISTS), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            found = False
        except OSError:  # it may be there: this machine cannot look now
            return True
        self.gone = not found
        return found

    @property
    def must_stay(self) -> bool:
        """Whether closing it would change something: puts are refused until all processes have left it."""
        queue = self.queue
        with contextlib.suppress(errors.ShmqError, OSError):
            return not self.gone and queue is not None and not queue.finished and queue.stats().shut_down
        return False

    @property
    def is_finished(self) -> bool:
        """Whether its stream has ended. Whoever opens it later and puts opens it again; this handle does not."""
        with contextlib.suppress(errors.ShmqError, OSError):
            return self.queue is not None and not self.gone and self.queue.finished
        return False

    def left(self) -> None:
        """Tell those who use it that it is gone. In the loop."""
        leaving, self.leaving = self.leaving, set()
        for each in leaving:
            each()

    def _let_go(self) -> None:
        self.log.close()
        if self.queue is not None:
            self.queue.close()

    def close(self) -> None:
        """Close it, and what hangs on it. Nobody uses it. May block."""
        for each in self.closing:
            each()
        self.closing.clear()  # some of them know it: no mapping waits for a look at circles
        self._let_go()
        os.close(self._pin)

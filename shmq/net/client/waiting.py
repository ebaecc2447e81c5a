"""Waiting: how long a call may, as it is given, and what is left of it; what is slept on, and whose turn it is."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

FOREVER = float("inf")
_NO_BLOCK = "a number of seconds, or None for as long as it takes, is wanted; 0 does not wait"


def deadline(timeout: Any) -> float:
    """
    Until when to wait, on the monotonic clock.

    Raises:
        TypeError, ValueError: it is no number of seconds.
    """
    if timeout is None:
        return FOREVER
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout={timeout!r:.200}: {_NO_BLOCK}")
    if not timeout >= 0:
        raise ValueError(f"timeout={timeout!r}: {_NO_BLOCK}")
    return time.monotonic() + timeout


def left(until: float) -> float | None:
    """Return the seconds until then; None for ever."""
    return None if until == FOREVER else max(until - time.monotonic(), 0.0)


def seconds(name: str, given: Any, *, none: bool = False) -> float:
    """
    A number of seconds, more than 0, or with *none* 0 or more.

    Raises:
        TypeError, ValueError: it is no such number.
    """
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"{name}={given!r:.200}: a number of seconds is wanted, not {type(given).__name__}")
    if not (0 <= given < FOREVER) or not (given or none):
        raise ValueError(f"{name}={given!r:.200}: seconds, {'0 or more' if none else 'more than 0'}, not for ever")
    return given


def limit(given: Any) -> int:
    """
    How many messages may come.

    Raises:
        TypeError, ValueError: it is no number, or below 1.
    """
    if isinstance(given, bool) or not hasattr(type(given), "__index__"):
        raise TypeError(f"limit={given!r:.200}: an int is wanted, not {type(given).__name__}")
    if int(given) < 1:
        raise ValueError(f"limit={given!r}: 1 or more")
    return int(given)


class Wake:
    """What the thread sleeps on beside its socket. Its descriptor is open as long as anybody may write to it."""

    def __init__(self) -> None:
        """Down."""
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def up(self) -> None:
        """Wake it."""
        os.eventfd_write(self.fd, 1)

    def down(self) -> None:
        """It is awake."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def __del__(self) -> None:
        """Close."""
        os.close(self.fd)


class Turn:
    """
    Who may do something with a connection. One that is lost is replaced by another one.

    Attributes:
        lock: held by whoever has it.
        holder: the thread of a caller that has it; 0 for the link's own, or nobody.
        is_half_done: a caller is at work, or was interrupted at it.
        problem: what a caller met that ends the connection.
    """

    def __init__(self, *, is_half_done: bool = False) -> None:
        """Nobody has it."""
        self.lock = threading.Lock()
        self.holder = 0
        self.is_half_done = is_half_done
        self.problem: Exception | None = None


class Watch:
    """
    What the link's thread sleeps on: its socket, and a Wake.

    A caller that waits for its answer itself has the socket meanwhile, so that it alone is woken by what comes there.
    """

    def __init__(self, line: socket.socket, wake: Wake) -> None:
        """The link's thread has the socket."""
        self._line = line
        self._wake = wake
        self._epoll = select.epoll()
        self._epoll.register(wake.fd, select.EPOLLIN)
        self._epoll.register(line, select.EPOLLIN)
        self._poll = select.poll()
        self._poll.register(wake.fd, select.POLLIN)
        self._poll.register(line, select.POLLIN)

    def sleep(self, seconds: float) -> bool:
        """Sleep until something is to be done; whether somebody says so. Of the link's thread."""
        return any(fd == self._wake.fd for fd, _ in self._epoll.poll(seconds))

    def have(self, *, unsent: bool) -> None:
        """The link's thread has the socket from now on; if something is *unsent*, it is woken also by room for that."""
        self._epoll.modify(self._line, select.EPOLLIN | (select.EPOLLOUT if unsent else 0))

    def lend(self) -> None:
        """
        A caller has it.

        Raises:
            ConnectionResetError: the thread has hung up.
        """
        try:
            self._epoll.modify(self._line, 0)
        except ValueError:  # what is closed has no number
            raise ConnectionResetError("the link has hung up") from None

    def hears(self, seconds: float) -> bool:
        """Whether something comes in time, before the link's thread is wanted. Of the caller that has the socket."""
        found = self._poll.poll(max(seconds, 0.0) * 1000)
        return bool(found) and all(fd != self._wake.fd for fd, _ in found)

    def close(self) -> None:
        """Close what is its own."""
        self._epoll.close()

"""A line on stderr that says how far the work is, where somebody looks at it: how fast it is, and what time is left."""

from __future__ import annotations

import os
import stat
import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_EVERY = 0.2
_BAR = 24
_SURE = 0.5
"""Seconds before which nothing is said of the time that is left."""


class Progress:
    """How many messages were done, and how fast; as a block of `with`, at whose end the line goes."""

    def __init__(self) -> None:
        """Nothing is done yet."""
        self._shown = sys.stderr.isatty()
        self._doing: str | None = None
        self._began = time.monotonic()
        self._next = self._began + _EVERY

    def at(self, doing: str, count: int, share: Callable[[], float | None] | None = None) -> None:
        """
        Say what was done to *count* messages, unless something was said a moment ago.

        Args:
            doing: "put", as it is said.
            count: how many there were so far.
            share: how much of it that is, from 0 to 1, where somebody knows.
        """
        if not self._shown:
            return
        now = time.monotonic()
        if self._doing not in {doing, None}:
            self.end()
            self._began, self._next = now, now + _EVERY
        self._doing = doing
        if now >= self._next:
            self._next = now + _EVERY
            told = line(doing, count, now - self._began, None if share is None else share())
            print(f"\r\033[K{told} ", end="", file=sys.stderr, flush=True)

    def at_share(self, doing: str, count: int, share: float) -> None:
        """As `at`, with the share of all at hand: what `shmq.verify` and its like call."""
        self.at(doing, count, lambda: share)

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clear the line."""
        self.end()


def line(doing: str, count: int, seconds: float, share: float | None) -> str:
    """What is shown when *count* messages were done in so many seconds, which is that share of all."""
    text = f"{doing} {count:,} message{'s' * (count != 1)}, {count / seconds:,.0f}/s"
    if share is None:
        return text
    share = min(max(share, 0.0), 1.0)
    full = int(share * _BAR)
    left = f", {_clock(seconds / share - seconds)} left" if share and seconds >= _SURE else ""
    return f"[{'#' * full}{'.' * (_BAR - full)}] {share:4.0%} {text}{left}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def of_stdin() -> Callable[[], float | None]:
    """How much of standard input was read, where it is a file."""
    try:
        about = os.fstat(0)
        size = about.st_size if stat.S_ISREG(about.st_mode) else 0
    except OSError:
        size = 0

    def share() -> float | None:
        return os.lseek(0, 0, os.SEEK_CUR) / size if size else None

    return share


def between(first: int, stop: int, at: int) -> Callable[[], float | None]:
    """How much of the indexes from *first* to *stop* lies before *at*."""
    return lambda: (at - first) / (stop - first) if stop > first else None

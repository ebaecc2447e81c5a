"""A line on stderr that says how far the work is, where somebody looks at it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_EVERY = 0.2


class Progress:
    """How many messages were done, and how fast; as a block of `with`, at whose end the line goes."""

    def __init__(self) -> None:
        """Nothing is done yet."""
        self._shown = sys.stderr.isatty()
        self._doing: str | None = None
        self._began = time.monotonic()
        self._next = self._began + _EVERY

    def at(self, doing: str, count: int) -> None:
        """Say what was done to *count* messages, unless something was said a moment ago."""
        if not self._shown:
            return
        now = time.monotonic()
        if self._doing not in {doing, None}:
            self.end()
            self._began, self._next = now, now + _EVERY
        self._doing = doing
        if now >= self._next:
            self._next = now + _EVERY
            rate = count / (now - self._began)
            print(f"\r{doing} {count:,} messages, {rate:,.0f}/s ", end="", file=sys.stderr, flush=True)

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

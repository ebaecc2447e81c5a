"""What the log of shmq warns of, on stderr, as whoever typed a command expects."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def on_stderr() -> Iterator[None]:
    """While it lasts, a warning is a line there."""
    handler = _ToStderr(logging.WARNING)
    log = logging.getLogger("shmq")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextlib.contextmanager
def but_what_ends(words: str) -> Iterator[None]:
    """While it lasts, no warning that ends so: whoever asked for it is told by an exception, and tells of that once."""

    def wanted(record: logging.LogRecord) -> bool:
        return not record.getMessage().endswith(words)

    found = [handler for handler in logging.getLogger("shmq").handlers if isinstance(handler, _ToStderr)]
    for handler in found:
        handler.addFilter(wanted)
    try:
        yield
    finally:
        for handler in found:
            handler.removeFilter(wanted)


class _ToStderr(logging.Handler):
    """Lines on whatever stderr is then."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print its text, if that can be; a log harms no verb."""
        with contextlib.suppress(OSError, ValueError):
            print(self.format(record), file=sys.stderr, flush=True)

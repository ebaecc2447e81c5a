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


class _ToStderr(logging.Handler):
    """Lines on whatever stderr is then."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print its text, if that can be; a log harms no verb."""
        with contextlib.suppress(OSError, ValueError):
            print(self.format(record), file=sys.stderr, flush=True)

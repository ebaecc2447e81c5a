"""Signals that ask a verb that runs until somebody ends it to end."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@contextlib.contextmanager
def asked(stop: Callable[[], object]) -> Iterator[None]:
    """While it lasts, SIGINT or SIGTERM calls *stop*, and a second one ends the verb where it is."""
    seen: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # a handler's signature
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        stop()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

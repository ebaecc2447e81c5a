"""Signals that ask a verb that runs until somebody ends it to end."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class Ended:
    """
    Whether a verb that these signals end at once was ended by one.

    Where the interpreter lets nothing out, as in what is called at a fork, it prints the KeyboardInterrupt and goes on:
    so whoever runs for long asks now and then.
    """

    def __init__(self) -> None:
        """Not yet."""
        self._heard = False

    def hear(self, number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG002  # a handler's signature
        """End it."""
        self._heard = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """
        For whoever has gone on.

        Raises:
            KeyboardInterrupt: it was ended.
        """
        if self._heard:
            raise KeyboardInterrupt


@contextlib.contextmanager
def at_once() -> Iterator[Ended]:
    """While it lasts, SIGTERM and a closed terminal end the verb where it is, as Ctrl-C does."""
    ended = Ended()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [each for each in every if signal.getsignal(each) is not signal.SIG_IGN]  # nohup, or a shell's &
    before = {each: signal.signal(each, ended.hear) for each in heard}
    try:
        yield ended
        ended.check()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


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

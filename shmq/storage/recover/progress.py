"""What others see of a recovery: that it makes progress, for which they wait; and what it found and did."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time

from shmq import errors, log
from shmq.hints import TYPE_CHECKING
from shmq.storage.paths import QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.directory import Directory

PATIENCE = 30.0
"""Seconds that an opener waits for whoever recovers, without progress."""
_BEAT_NS, _TELL_NS = 250_000_000, 5_000_000_000


@dataclasses.dataclass(frozen=True)
class Recovery:
    """
    What the recovery of a queue found and did.

    Attributes:
        from_epoch, to_epoch: the epochs before and after.
        kept: messages that were kept: all of them, if nothing was cut; in chunks below the watermark, which are not
            looked at, with their padding.
        end: the index behind the last one kept.
        next_index: the index of the next put, beyond every index that may have been given before.
        cut_bytes: bytes in the last chunk that were not zero and are no part of it any more.
        where: (file, position) of the cut.
        reason: why it was made there.
        aside: files that lay behind the cut, and the one that was cut, if a whole message was behind it: they are in
            the folder aside/ of the queue, and `repair(path, aside=from_epoch)` makes a queue of them.
        aside_messages: whole messages in there that are not in the queue any more.
        moved: consumer names that stand elsewhere now, since they were ahead of the end, or since their last
            acknowledgements were not on the disk: {name: (head before, head now)}.
        adopted, swept: staged sets that were finished, and that were removed since nothing had committed them.
    """

    from_epoch: int
    to_epoch: int
    kept: int
    end: int
    next_index: int
    cut_bytes: int
    where: tuple[str, int] | None
    reason: str
    aside: tuple[str, ...]
    aside_messages: int
    moved: dict[str, tuple[int, int]]
    adopted: int
    swept: int


class Progress:
    """
    What others see of a recovery: the time of queue.shmq moves on as long as it makes progress; and now and then a line
    in the log, when it takes long.
    """

    def __init__(self, home: Directory, steps: int, doing: str = "looking at") -> None:
        self._home = home
        self._steps = steps
        self._doing = doing
        self._done = 0
        self._beat_ns = time.monotonic_ns()
        self._told_ns = self._beat_ns

    def step(self) -> None:
        """One chunk more."""
        now_ns = time.monotonic_ns()
        self._done += 1
        if now_ns - self._beat_ns >= _BEAT_NS and not self._home.read_only:
            self._beat_ns = now_ns
            with contextlib.suppress(OSError):
                os.utime(QUEUE, dir_fd=self._home.fd)
        if now_ns - self._told_ns >= _TELL_NS:
            self._told_ns = now_ns
            _tell(f"recovering {self._home.path}: {self._doing} chunk {self._done:,} of {self._steps:,}")


def _tell(text: str) -> None:
    log.say(log.WARNING, "%s", text)


def tell_of(home: Directory, done: Recovery | None) -> None:
    """Where whole messages are not in the queue any more, a line in the log, since few ask for `Queue.recovery`."""
    if done is not None:
        log.say(
            log.INFO,
            "recovered %s, last open in another boot or elsewhere: it keeps %d messages, and the next index is %d",
            home.path,
            done.kept,
            done.next_index,
        )
    if done is not None and done.aside_messages:
        _tell(
            f"recovering {home.path} kept {done.kept:,} messages; {done.aside_messages:,} more that were whole lay "
            f"behind damage ({done.reason}) and are in its folder aside/: `shmq repair {home.path} --aside "
            f"{done.from_epoch}`, or shmq.repair(path, aside={done.from_epoch}), makes a queue of them"
        )


@contextlib.contextmanager
def administering(home: Directory) -> Iterator[None]:
    """Hold the administrative lock; wait for it as long as whoever has it makes progress, if that is a recovery."""
    with contextlib.ExitStack() as held:
        while True:
            before = os.stat(QUEUE, dir_fd=home.fd).st_mtime_ns
            try:
                held.enter_context(home.admin(PATIENCE))
                break
            except errors.Busy:
                if os.stat(QUEUE, dir_fd=home.fd).st_mtime_ns == before:
                    raise
                _tell(f"waiting to open {home.path}: somebody recovers it, and makes progress")
        yield

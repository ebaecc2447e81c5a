"""
Replaying a queue: its messages, at the pace that was asked for, put into another queue or handed to a function.

Into a queue, each message is put under its own index in the source (`dedup`), so that a replay that is killed goes on,
and two of them at once put nothing twice.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import handlers, show, whence
from shmq.cli.progress import Progress, between

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator


class _Pace:
    """Waits until a message is due: as long after the first one as it was then, divided by the speed."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._began: tuple[float, int] | None = None

    def wait(self, message: shmq.Message) -> None:
        """Return when it is due; at once when that has passed, or times go back."""
        if self._speed is None:
            return
        if self._began is None:
            self._began = time.monotonic(), message.time_ns
        began, first_ns = self._began
        rest = began + (message.time_ns - first_ns) / 1e9 / self._speed - time.monotonic()
        if rest > 0:
            time.sleep(rest)


class Replay:
    """One run: what was done so far, and where it is."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Nothing is done yet."""
        self._given = arguments
        self.messages = self.failed = 0
        self.next: int | None = None
        """The index at which to go on."""

    def run(self) -> int:
        """Replay; return the exit status. Said at the end, also where that is Ctrl-C or an error."""
        given = self._given
        with show.open_queue(given.source, read_only=True, trusted=given.trusted) as source:
            first = whence.index_at(source, "--from", given.start or "earliest")
            stop = whence.index_at(source, "--to", given.stop or "latest")
            self.next = first
            if handlers.is_handler(given.target):
                self._finish(self._handle, source, first, stop, handlers.find(given.target))
            else:
                self._copy(source, first, stop)
        return 1 if self.failed else 0

    def _copy(self, source: shmq.Queue, first: int, stop: int) -> None:
        given = self._given
        with _made_for(source, given) if _is_missing(given.target) else show.open_queue(given.target) as target:
            _refuse_itself(source, target, given)
            begins = whence.lasting(source, "--from", given.start or "earliest")
            who = f"replay {source.id} {begins} {show.wanted(given)!r}"
            before = target.adopted(who)
            begin = first if before is None else max(first, before[0] + 1)
            self.next = begin
            self._finish(self._put, source, begin, stop, target, who, settle=lambda: self._count_put(target, who))

    def _count_put(self, target: shmq.Queue, who: str) -> None:
        """What was put last is counted, though the interruption came before that."""
        last = target.adopted(who)
        if last is not None and self.next is not None and last[0] >= self.next:
            self.messages += 1
            self.next = last[0] + 1

    def _finish(self, work: Callable[..., None], *words: Any, settle: Callable[[], None] = lambda: None) -> None:
        try:
            work(*words)
        except KeyboardInterrupt:
            settle()
            print(f"shmq: ended before message {self.next} of {self._given.source}{self._how()}", file=sys.stderr)
            raise
        finally:
            self._tell()

    def _how(self) -> str:
        if handlers.is_handler(self._given.target):
            return f"; --from {self.next} goes on there"
        return "; the same words go on there"

    def _put(self, source: shmq.Queue, first: int, stop: int, target: shmq.Queue, who: str) -> None:
        for message in self._due(source, first, stop):
            try:
                target.put(
                    message.payload,
                    key=message.key,
                    type=message.type,
                    time_ns=message.time_ns,
                    headers=message.headers or None,
                    dedup=(who, message.index),
                )
            except (TypeError, ValueError) as problem:
                raise show.Problem(
                    f"cannot put message {message.index} of {source.path} into {target.path}, whose codec is "
                    f"{target.options.codec!r}: {problem}; what was before it is there"
                ) from None
            self._done(message)

    def _handle(self, source: shmq.Queue, first: int, stop: int, handler: Callable[[Any], object]) -> None:
        for message in self._due(source, first, stop):
            try:
                handler(message)
            except (Exception, SystemExit) as problem:  # noqa: BLE001  # whatever it raises is its failure
                self._say(message, problem)
            self._done(message)

    def _say(self, message: shmq.Message, problem: BaseException) -> None:
        """Tell of a failure; go on only where that was asked for."""
        self.failed += 1
        text = f"{self._given.target} failed at message {message.index} of {self._given.source}: "
        text += f"{type(problem).__name__}: {show.one_line(problem)}"
        if not self._given.go_on:
            traceback.print_exception(problem)
            before = self.messages
            self.messages += 1  # it was called with this one, too
            raise show.Problem(f"{text}; {before:,} before it were handled, --from {message.index} begins with it")
        print(f"shmq: {text}", file=sys.stderr)

    def _due(self, source: shmq.Queue, first: int, stop: int) -> Iterator[shmq.Message]:
        """The messages that were asked for, each when it is due, or when somebody has pressed Enter."""
        pace = _Pace(self._given.speed)
        show_it = show.printer(source, self._given.format) if self._given.step else None
        with Progress() as progress:
            for message in source.reader(first, stop, filter=show.wanted(self._given)):
                self.next = message.index
                if show_it is None:
                    pace.wait(message)
                elif not _stepped(message, show_it):
                    return
                yield message
                progress.at("replayed", self.messages, between(first, stop, message.index + 1))
        if self.next is not None:
            self.next = max(self.next, stop)

    def _done(self, message: shmq.Message) -> None:
        self.messages += 1
        self.next = message.index + 1

    def _tell(self) -> None:
        given = self._given
        if given.json:
            show.facts({"messages": self.messages, "failed": self.failed, "next": self.next, "target": given.target})
        elif handlers.is_handler(given.target):
            failed = f", {self.failed:,} of which failed" if self.failed else ""
            print(f"called {given.target} with {show.counted(self.messages, 'message')}{failed}")
        else:
            print(f"put {show.counted(self.messages, 'message')} into {given.target}")


def _made_for(source: shmq.Queue, given: argparse.Namespace) -> shmq.Queue:
    """
    A new target.

    Raises:
        Problem: it would be gone when this ends, or needs a codec that is not here.
    """
    show.refuse_to_make(given.target)
    codec = source.options.codec
    try:
        return shmq.open(given.target, codec=codec, trusted=True)
    except ValueError:
        if codec in {"bytes", "text", "json", "msgpack", "pickle"}:
            raise
        raise show.Problem(
            f"cannot make {given.target}: {given.source} has codec {codec!r}, which is not shmq's own, and this "
            "command has not got it; nothing was made. `shmq copy --new-id` makes a queue of the same codec"
        ) from None


def _refuse_itself(source: shmq.Queue, target: shmq.Queue, given: argparse.Namespace) -> None:
    """
    Refuse a target that has the source's id.

    Raises:
        Misuse: it is the source, or what came of a copy of it.
    """
    if target.id != source.id:
        return
    if os.path.samefile(target.path, source.path):
        raise show.Misuse(f"{given.target} is the queue that is replayed; name another one")
    own = f"shmq copy --new-id {shlex.quote(given.source)} DIRECTORY"
    raise show.Misuse(
        f"{given.target} has the id of {given.source}: one is a backup or a follower of the other, or was, so what "
        f"both have would be there twice. `{own}` makes a queue that can be replayed into it"
    )


def _is_missing(path: str) -> bool:
    try:
        shmq.open(path, create=False, read_only=True, trusted=True).close()
    except shmq.NotFound:
        return True
    return False


def _stepped(message: shmq.Message, show_it: Callable[[shmq.Message], None]) -> bool:
    """Show it, and wait for Enter; False when there is nobody to press it any more."""
    show_it(message)
    sys.stdout.flush()
    print(f"{message.index}: Enter ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline() != ""

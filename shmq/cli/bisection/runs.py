"""A run of the handler in a fresh process, which may die, hang or talk as it likes; and what came of it."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from shmq.cli import show
from shmq.cli.bisection import child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PROGRAM = "import sys; sys.path[:] = {path!r}; from shmq.cli.bisection import child; child.main({numbers})"
_TAIL_BYTES = 16384
_LAST_LINES = 25
_LOOK = 0.1
_START_SECONDS = 300.0
"""What the handler's imports may take, at least."""
_DUMP = 1.0
"""Seconds that a process has to say where it hangs."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one run."""

    kind: str
    """ "none" when nothing failed; else "raised", "signal", "exit", "timeout", or "check"."""
    index: int | None
    """Of the message at which it failed, or after which the check did."""
    count: int
    """How many messages were handed over."""
    what: str = ""
    type: str = ""
    place: str = ""
    text: str = ""
    """A traceback, or the last words of a process that died."""
    died: bool = False

    @property
    def failed(self) -> bool:
        """Whether something did."""
        return self.kind != "none"

    def is_like(self, other: Outcome) -> bool:
        """Whether it is the same failure: of the same kind, raised on the same line, by a death the same signal."""
        return self.mark == other.mark

    @property
    def mark(self) -> tuple[str, ...]:
        """What it shares with failures of the same cause."""
        return (self.kind, self.type, self.place, "" if self.type else self.what)


@dataclasses.dataclass(frozen=True)
class Given:
    """What all runs have in common."""

    queue: str
    handler: str
    check: str | None
    trusted: bool
    key_prefix: bytes
    headers: dict[str, str]
    types: Sequence[int] | None
    timeout: float

    def over(self, ranges: Sequence[tuple[int, int]], case: str | None = None) -> dict[str, Any]:
        """The request for a run over the messages of these *ranges* of indexes, or over those of a case."""
        asked = dataclasses.asdict(self)
        asked["key_prefix"] = base64.b64encode(self.key_prefix).decode()
        return asked | {"ranges": ranges, "case": case}


class Runs:
    """Makes runs, one at a time."""

    def __init__(self, given: Given, tell: Callable[[str, int], None]) -> None:
        """*tell* is told what is done, and how many messages were."""
        self._given = given
        self._tell = tell
        self.made = self.messages = 0

    def over(self, ranges: Sequence[tuple[int, int]], case: str | None = None) -> Outcome:
        """
        Run; return what came of it.

        Raises:
            Problem: the handler cannot be found, or the messages not be read; or it died before the first one.
        """
        self.made += 1
        with contextlib.ExitStack() as stack:
            request, board, answer = (stack.enter_context(_memory(name)) for name in ("request", "board", "answer"))
            os.write(request, json.dumps(self._given.over(ranges, case)).encode())
            os.lseek(request, 0, os.SEEK_SET)
            os.ftruncate(board, child.PAGE)
            page = stack.enter_context(mmap.mmap(board, child.PAGE))
            words = _PROGRAM.format(path=sys.path, numbers=f"{os.getpid()}, {request}, {board}, {answer}")
            process = stack.enter_context(_started(words, (request, board, answer)))
            watched = _Watched(process, page, self._given.timeout, lambda count: self._tell(f"run {self.made}:", count))
            status = watched.wait()
            doing, index, count = child.BOARD.unpack_from(page)
            self.messages += count
            found = os.pread(answer, 1 << 26, 0)
        if found and not watched.hung:
            return _told(json.loads(found))
        return self._death(doing, index, count, status, watched)

    def _death(self, doing: int, index: int, count: int, status: int, watched: _Watched) -> Outcome:
        text = "\n".join(watched.said.decode(errors="replace").splitlines()[-_LAST_LINES:])
        if watched.hung:
            kind, what = "timeout", f"no end after {watched.patience(doing):g} s"
        elif status < 0:
            kind, what = "signal", f"killed by {signal.Signals(-status).name}"
        else:
            kind, what = "exit", f"its process ended with status {status}"
        if doing == child.STARTING:
            raise show.Problem(f"{self._given.handler} failed before the first message: {what}\n{text}".rstrip())
        return Outcome("check" if doing == child.CHECKING else kind, index, count, what, text=text, died=True)


def _told(found: dict[str, Any]) -> Outcome:
    if found["kind"] == "problem":
        raise show.Problem(found["what"])
    return Outcome(**found)


@contextlib.contextmanager
def _memory(name: str) -> Iterator[int]:
    fd = os.memfd_create(f"shmq bisect {name}")
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _started(words: str, fds: Sequence[int]) -> Iterator[subprocess.Popen[bytes]]:
    """The process; at the end it and all that it has started is gone."""
    with subprocess.Popen(  # noqa: S603  # what the user asked to run
        [sys.executable, "-c", words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=fds,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                _end_all(process.pid)


def _end_all(pid: int) -> None:
    """Kill that process, which nobody has waited for yet, and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class _Watched:
    """A process that is watched until it ends, or makes no progress for too long."""

    def __init__(
        self, process: subprocess.Popen[bytes], page: mmap.mmap, timeout: float, tell: Callable[[int], None]
    ) -> None:
        self._process, self._page, self._timeout, self._tell = process, page, timeout, tell
        self.said = b""
        """The end of what it wrote to its standard output and error."""
        self.hung = False

    def wait(self) -> int:
        """Return its exit status, or minus the signal that ended it."""
        assert self._process.stdout is not None  # noqa: S101  # it was started so
        out = self._process.stdout.fileno()
        os.set_blocking(out, False)
        pid = os.pidfd_open(self._process.pid)
        try:
            poll = select.poll()
            poll.register(pid, select.POLLIN)
            poll.register(out, select.POLLIN)
            self._until_end(poll, pid, out)
        finally:
            os.close(pid)
        _end_all(self._process.pid)
        while self._read(out):
            pass
        return self._process.wait()

    def _until_end(self, poll: select.poll, pid: int, out: int) -> None:
        seen, since = None, time.monotonic()
        while True:
            ready = {fd for fd, _ in poll.poll(min(_LOOK, max(self._timeout / 4, 0.001)) * 1000)}
            if out in ready and not self._read(out):
                poll.unregister(out)
            if pid in ready:
                return
            board = child.BOARD.unpack_from(self._page)
            self._tell(board[2])
            if board != seen:
                seen, since = board, time.monotonic()
            elif not self.hung and time.monotonic() - since > self.patience(board[0]):
                self.hung = True
                since = time.monotonic()
                self._process.send_signal(signal.SIGABRT)  # has it say where it is
            elif self.hung and time.monotonic() - since > _DUMP:
                self._process.kill()

    def patience(self, doing: int) -> float:
        """How long it may do that."""
        return max(self._timeout, _START_SECONDS) if doing == child.STARTING else self._timeout

    def _read(self, out: int) -> bool:
        """Take what it said; whether there may be more."""
        try:
            part = os.read(out, 65536)
        except BlockingIOError:
            return False
        self.said = (self.said + part)[-_TAIL_BYTES:]
        return bool(part)

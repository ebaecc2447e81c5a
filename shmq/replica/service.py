"""Having one queue follow another one: both on this machine, or with a link between them; until somebody ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from typing import TYPE_CHECKING

from shmq import errors, given, later
from shmq.replica import doors
from shmq.replica.follower import Follower
from shmq.replica.link import Broken, Link, raised, to_follower, to_source
from shmq.replica.pieces import Answer, Common, Data, Hello, Mark, Refused, There
from shmq.replica.source import Source

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

FLUSH_BYTES = 32 << 20
"""So many bytes may come before the disk is asked."""
IDLE = 0.5
_PAUSE = 1.0
"""Seconds before what failed for a while is tried again: there was no room, or nobody listened."""
_STEP = 0.1
_NAME_MAX = 48
_RIGHT = "replicate"
_log = logging.getLogger("shmq")


class Stop:
    """What ends a replication, from another thread or a signal's handler: it takes no lock."""

    def __init__(self) -> None:
        """It goes on."""
        self._over = False
        self._calls: list[Callable[[], object]] = []

    def __call__(self) -> None:
        """End it, soon."""
        self._over = True
        for call in list(self._calls):
            call()

    @contextlib.contextmanager
    def calling(self, call: Callable[[], object]) -> Iterator[None]:
        """Within this block, call that too."""
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    def is_set(self) -> bool:
        """Whether it is to end."""
        return self._over

    def pause(self, seconds: float) -> None:
        """Wait so long, unless it is to end."""
        until = time.monotonic() + seconds
        while not self._over and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _STEP))


def name_of(target: str) -> str:
    """What a follower is called whose name was not given: as its directory."""
    last = os.path.basename(target.rstrip("/").removeprefix(doors.UNIX))
    return re.sub(r"[^A-Za-z0-9_.-]", "-", last).strip(".-")[:_NAME_MAX] or "follower"


def replicate(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    name: str | None = None,
    keep: int | None = None,
    once: bool = False,
    token: bytes | None = None,
    ca: str | None = None,
    stop: Stop | None = None,
    reset: bool = False,
    rejoin: bool = False,
) -> None:
    """
    Have *target* follow the queue *source*, with the same indexes, times and keys, until *stop* is called.

    What *target* lacks is held back in *source*, also while nobody replicates; `drop_consumer("replica.NAME")` there
    lets go of it.

    Args:
        source: a queue on a disk.
        target: the follower's directory, which is made if there is none; or "unix:PATH" or "tcp:HOST:PORT", where a
            `listen` or a hub has it; other machines' addresses take a hub, and TLS.
        name: of the follower; that of its directory by default. Each follower of a queue has its own. At a hub, that
            of the client, a dot, and that of the queue.
        keep: so many bytes at most are held back; a follower that lacks more must be begun anew.
        once: end when it has all that is there now.
        token: what both sides of a tcp link know, at least 16 bytes.
        ca: a PEM file: a tcp link is TLS, and that authority alone is believed.
        stop: ends it, soon, when it is called.
        reset: where the follower has another history, or lacks what was retired, what it has and *source* has not is
            set aside, and told in the log with its count; then it follows. Nothing is deleted.
        rejoin: the same of a *target* that is fenced, since *source* was promoted over it: it is a follower from then.

    Raises:
        Mismatch: the follower is another queue, or has another history; nothing was changed.
        Gone: what it lacks is not there any more.
        Fenced: *source* follows another queue, or one that followed it was promoted: then it is fenced from now on.
        Busy: somebody else replicates to it; or something is to be set aside, and somebody has it open.
        Corrupt, SyncFailed, Unsafe, NotFound: as their names say; what the follower has stays.
        DiskFull, OSError: with *once*; else it is tried again and again.
        ValueError: *target* looks like an address, and is none; or it lies within *source*.
    """
    path, place = given.path("source", source), doors.target(given.path("target", target))
    name = None if name is None else given.text("name", name)
    if not doors.is_address(place) and _is_within(place, path):
        raise ValueError(f"cannot replicate {path} to {place}: it would lie within the queue that it follows")
    stop = stop or Stop()
    keep = None if keep is None else given.whole("keep", keep, 0)
    with Source(path, name or name_of(place), keep) as there, stop.calling(there.wake):
        what = f"{path} to {place}"
        if doors.is_address(place):
            _again_and_again(
                what, lambda: _through_a_link(there, place, token, stop, once=once, ca=ca), stop, once=once
            )
        else:
            with Follower(place, reset=reset, rejoin=rejoin) as here:
                _again_and_again(what, lambda: beside(there, here, stop, once=once), stop, once=once)


def _is_within(place: str, path: str) -> bool:
    """Whether that directory would lie below that one."""
    above = os.path.realpath(path)
    return os.path.realpath(place).startswith(f"{above}{os.sep}")


def _again_and_again(what: str, work: Callable[[], None], stop: Stop, *, once: bool) -> None:
    """Do it; what may pass by itself is tried again."""
    told = ""
    while not stop.is_set():
        try:
            work()
        except (errors.DiskFull, OSError) as problem:
            if once:
                raise
            if str(problem) != told:
                told = str(problem)
                _log.warning("cannot replicate %s now: %s; it is tried again", what, told)
            stop.pause(_PAUSE)
        else:
            return


# ---------------------------------------------------------------- on one machine
def beside(source: Source, follower: Follower, stop: Stop, *, once: bool = False) -> None:
    """Have *follower* follow *source*; raises as `replicate`."""
    answer = follower.answer(source.hello())
    try:
        source.begin(answer)
    except (errors.Mismatch, errors.Gone):
        if not answer.reset:
            raise
        source.begin(follower.reset(source.common(answer)))
    while not stop.is_set():
        came = unsynced = 0
        for piece in source.pieces():
            follower.take(piece)
            came += 1
            unsynced += len(piece.content) if isinstance(piece, Data) else 0
            if unsynced >= FLUSH_BYTES:
                _flush(source, follower)
                unsynced = 0
            if stop.is_set():
                break
        if came:
            _flush(source, follower)
        elif once:
            return
        source.tend()
        if not came:
            source.wait(IDLE)


def _flush(source: Source, follower: Follower) -> None:
    mark = follower.flush()
    if mark is not None:
        source.acknowledged(mark)


# ---------------------------------------------------------------- the side that is followed, at a link
def _through_a_link(
    source: Source, address: str, token: bytes | None, stop: Stop, *, once: bool, ca: str | None
) -> None:
    with Link(_reach(address, token, ca), to_source) as link, stop.calling(link.end):
        try:
            send(source, link, stop, once=once)
        except Broken:
            if not stop.is_set():
                raise


def _reach(address: str, token: bytes | None, ca: str | None) -> socket.socket:
    """A connection; an error of the system that names nothing names the address."""
    try:
        return doors.connect(address, token, ca)
    except OSError as problem:
        if problem.errno is not None and problem.filename is None:
            problem.filename = address
        raise


class _Listener:
    """Hears what the follower says, beside whoever sends."""

    def __init__(self, source: Source, link: Link) -> None:
        self.problem: Exception | None = None
        self._source = source
        self._link = link
        self._thread = threading.Thread(target=self._hear, name="shmq-replica", daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        try:
            while True:
                back = self._link.receive()
                if isinstance(back, Mark):
                    self._source.acknowledged(back)
                elif isinstance(back, Refused):
                    raise raised(back)
                else:
                    raise Broken("the link is of no use: a second answer came")
        except (errors.ShmqError, OSError) as problem:
            self.problem = problem
            self._link.end()
            self._source.wake()

    def join(self) -> None:
        """It is over: wait until all was heard."""
        self._thread.join()


def send(source: Source, link: Link, stop: Stop, *, once: bool = False) -> None:
    """
    Have whoever is at the other end of *link* follow *source*; raises as `replicate`.

    Raises:
        Broken: the link ended.
    """
    link.send(source.hello())
    answer = _answer(link)
    try:
        source.begin(answer)
    except (errors.Mismatch, errors.Gone):
        if not answer.reset:
            raise
        link.send(source.common(answer))
        source.begin(_answer(link))
    listener = _Listener(source, link)
    try:
        _send(source, link, listener, stop, once=once)
    except Broken:
        link.end()
        listener.join()
        if isinstance(listener.problem, errors.ShmqError):  # which says why
            raise listener.problem from None
        raise
    finally:
        link.end()
        listener.join()


def _answer(link: Link) -> Answer:
    answer = link.receive()
    if isinstance(answer, Refused):
        raise raised(answer)
    if not isinstance(answer, Answer):
        raise Broken("the link is of no use: no answer came")
    return answer


def _send(source: Source, link: Link, listener: _Listener, stop: Stop, *, once: bool) -> None:
    while not stop.is_set():
        came = False
        for piece in source.pieces():
            link.send(piece)
            came = True
        if listener.problem is not None:
            raise listener.problem
        source.tend()
        if once and not came and source.caught_up():
            return
        if not came:
            source.wait(_STEP if once else IDLE)


# ---------------------------------------------------------------- the side that follows
def listen(
    address: str,
    target: str | os.PathLike[str],
    *,
    token_file: str | os.PathLike[str] | None = None,
    stop: Stop | None = None,
    on_start: Callable[[str], object] | None = None,
    reset: bool = False,
    rejoin: bool = False,
) -> None:
    """
    Have the queue at *target* follow whoever comes to *address* with it, one at a time, until *stop* is called.

    Args:
        address: "unix:PATH", or "tcp:HOST:PORT" of this machine; port 0 is any that is free.
        target: the follower's directory, which is made if there is none.
        token_file: for a tcp link: whose token may come, lines with the right `replicate` to the queue that the
            last part of *target* is called (docs/how-to/serve.md). It is read once.
        stop: ends it, soon, when it is called.
        on_start: called with the address when somebody may come.
        reset, rejoin: as `replicate`, once.

    Raises:
        Busy, Unsafe, OSError: nobody can listen there.
        BadFormat: *token_file* is none, or nobody in it may.
    """
    place = doors.target(given.path("target", target))
    stop = stop or Stop()
    reset, rejoin = given.flag("reset", reset), given.flag("rejoin", rejoin)
    known = None if token_file is None else _Known(token_file, os.path.basename(os.path.abspath(place)))
    with doors.Door(address, known) as door:
        if on_start is not None:
            on_start(door.address)
        while not stop.is_set():
            came = door.accept(_STEP)
            if came is not None:
                how = {"reset": reset, "rejoin": rejoin}
                digest = door.token_of(came)
                if known is None or digest is None:
                    here = Follower(place, **how)
                else:
                    here = _Admitted(place, known, digest, **how)
                with Link(came, to_follower) as link, stop.calling(link.end), here as follower:
                    receive(follower, link)
                if follower.was_reset:
                    reset = rejoin = False


class _Known:
    """By which tokens one may come with the queue of one name, and for how long."""

    def __init__(self, token_file: str | os.PathLike[str], name: str) -> None:
        """
        Read that file.

        Raises:
            BadFormat: it is none, or no token of it may.
            Unsafe, OSError: see `shmq.net.tokens`.
        """
        later.ready("shmq.net.tokens")
        from shmq.net.tokens import Tokens  # noqa: PLC0415  # with it comes all of the server

        self._name = name
        self._by_digest = Tokens(token_file, closed=True).by_digest()
        if not self():
            raise errors.BadFormat(f"{os.fspath(token_file)}: no line in it has the right {_RIGHT} to {name!r}, now")

    def __call__(self) -> list[bytes]:
        """The SHA-256 of those that may come now."""
        return [digest for digest in self._by_digest if self.may(digest)]

    def may(self, digest: bytes) -> bool:
        """Whether it still may."""
        return self._by_digest[digest].may(_RIGHT, self._name)


class _Admitted(Follower):
    """A follower of whoever came with a token."""

    def __init__(self, path: str, known: _Known, digest: bytes, **how: bool) -> None:
        """*digest*: the SHA-256 of that token."""
        super().__init__(path, **how)
        self._known, self._digest = known, digest

    def take(self, piece: There) -> None:
        """
        See `Follower`.

        Raises:
            NotFound: the token's time is over.
        """
        if not self._known.may(self._digest):
            raise errors.NotFound(f"cannot follow into {self.path}: the time of the token is over; what came is kept")
        super().take(piece)


def receive(follower: Follower, link: Link) -> None:
    """Have *follower* follow whoever is at the other end of *link*, until that ends; what goes wrong is told there."""
    try:
        _receive(follower, link)
    except Broken as problem:
        _log.info("%s: %s", follower.path, problem)
    except (errors.ShmqError, OSError) as problem:
        _log.warning("%s", problem)
        kind = type(problem).__name__ if isinstance(problem, errors.ShmqError) else "DiskFull"
        with contextlib.suppress(Broken):
            link.send(Refused(kind, str(problem)))


def _receive(follower: Follower, link: Link) -> None:
    hello = link.receive()
    if not isinstance(hello, Hello):
        raise Broken("the link is of no use: no hello came")
    link.send(follower.answer(hello))
    told, unsynced = None, 0
    while True:
        piece = link.receive()
        if isinstance(piece, Common):
            link.send(follower.reset(piece))
            continue
        follower.take(piece)
        unsynced += len(piece.content) if isinstance(piece, Data) else 0
        if unsynced >= FLUSH_BYTES or not link.has_more():
            unsynced = 0
            mark = follower.flush()
            if mark is not None and mark != told:
                link.send(mark)
                told = mark

"""
Moving a message to another queue: dead letters, and what expired.

The word of the message says MOVING from before the put until after it, so whoever finds it there after a death repeats
the move. A dead letter is put with its origin as dedup id, so a repeated move finds the first copy, also one that was
finished and retired. What expired may be millions, which nobody remembers for ever: there a repeated move looks for the
copy.

Nothing here waits for room in the other queue, and none of it happens under the lock of the group's member: who cannot
move a message says so, and the messages behind it go on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
import warnings

from shmq import errors, later
from shmq.deadlines import deadline_of
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.options import Durability, Options, Retention
from shmq.putting.producer import Producer
from shmq.reading.reader import Reader
from shmq.session import Session
from shmq.storage import files, making, volatile
from shmq.storage.dedup import last_of
from shmq.storage.directory import Directory
from shmq.taking import group_options

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from shmq.durability import Syncer
    from shmq.message import Message

GROUP = "operator"
"""In a dead-letter queue, the group by which its letters are finished."""
_TEXT_MAX = 8192
_SHOWN = 400
"""Of a name that is too long, so much is shown."""
_DISK_SECONDS = 10.0
"""How long a copy may take to get to the disk."""
_REST_FIRST, _REST_MAX = 1.0, 60.0
"""Seconds after which a queue that took nothing is tried again: the first time, and after many."""
_PATHS = ("dead_letter", "expire_to")


class _Raw(Producer):
    """Puts payloads as they are, encoded already."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._encode = None
        self._code_with(None)

    def _make_syncer(self) -> Syncer | None:
        """None: the mover waits for the disk, once for many."""
        return None


def path_of(session: Session, given: str | None, group: str) -> str:
    """
    Where a group's letters go: beside the queue, unless the path is absolute. As `shmq.open` takes it.

    Beside a volatile queue is a volatile queue, which lasts as long as that one has users.
    """
    if given is None:
        return f"{session.place}.{group}.dead"
    if volatile.is_volatile(session.place) and not os.path.isabs(given):
        return volatile.beside(session.place, given)
    return os.path.join(os.path.dirname(session.path), given)


def check_paths(session: Session, group: str, options: Mapping[str, Any], *, named_here: Mapping[str, Any]) -> None:
    """
    Refuse paths of other queues that cannot be used, when a group is opened and not at its first dead letter.

    What is stored may be somebody else's: a path that leads away from beside the queue counts only where this opening
    names it, too.

    Raises:
        Unsafe: it leads elsewhere, and was not named here.
        Mismatch: it is the group's own queue.
        Corrupt: what is stored is no path.
        ValueError: what was given here is none: too long, or not to be encoded.
        NotFound, BadFormat, PermissionError: there is no queue, and none can be made.
    """
    if volatile.is_volatile(session.place):
        volatile.home_of(path_of(session, None, group))  # together the names may be too long
    for option in _PATHS:
        given = options.get(option)
        if given is None:
            continue
        tried = f"cannot open consumer {group!r} of {session.path} with {option}={given!r}"
        if not isinstance(given, str):
            raise errors.Corrupt(f"{tried}: what is stored is not a path")
        if given in ("", ".", "..") or "\0" in given:
            raise errors.NotFound(f"{tried}: that is not the name of a queue")
        if named_here.get(option) != given and os.path.basename(given) != given:
            raise errors.Unsafe(
                f"{tried}, which is stored in the queue: it does not lie beside it. Whoever trusts it names it, too: "
                f"consumer({group!r}, group=True, {option}={given!r})"
            )
        if given.startswith(volatile.PREFIX) and not volatile.is_volatile(session.place):
            raise errors.Mismatch(f"{tried}: what a queue on the disk gives away must not be in memory only")
        place = path_of(session, given, group)
        unfit = _unfit(place)
        if unfit:
            kind = ValueError if named_here.get(option) == given else errors.Corrupt
            raise kind(f"{tried[:_SHOWN]}: {unfit}")
        _check_target(session, place, tried)


def _unfit(place: str) -> str:
    """Why no queue can have that name; nothing when one can."""
    try:
        path = volatile.home_of(place) if volatile.is_volatile(place) else place
        os.lstat(path)
    except ValueError as problem:  # also what cannot be encoded
        return f"that is not the name of a queue ({problem})"
    except OSError as problem:
        if problem.errno == errno.ENAMETOOLONG:
            return f"that is not the name of a queue: it is too long ({len(place)} characters)"
    return ""


def _check_target(session: Session, place: str, tried: str) -> None:
    path = volatile.home_of(place) if volatile.is_volatile(place) else place
    try:
        there = Directory(path, read_only=True, group=session.options.group)
    except errors.NotFound:
        if os.path.isdir(path):
            _check_empty(path, tried, session.options.group)
        above = os.path.dirname(path)
        if not os.path.isdir(above):
            raise errors.NotFound(f"{tried}: there is no directory {above}") from None
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(f"{tried}: no queue can be made in {above}") from None
        return
    except errors.ShmqError as problem:
        raise type(problem)(f"{tried}: {problem}") from None
    with contextlib.closing(there):
        if there.queue_id == session.home.queue_id:
            raise errors.Mismatch(f"{tried}: that is this queue itself")


def _check_empty(path: str, tried: str, group: int | None) -> None:
    """A directory that is no queue yet may become one, unless something else lies in it."""
    try:
        with files.open_directory(path, group=group) as fd:
            making.refuse_strangers(fd, path)
    except errors.ShmqError as problem:
        raise type(problem)(f"{tried}: {problem}") from None


def why(reason: object) -> tuple[str, str]:
    """A reason in words, and the traceback of the exception it is, or that is being handled."""
    problem = reason if isinstance(reason, BaseException) else sys.exc_info()[1]
    text = ""
    if problem is not None:
        later.ready("traceback")
        import traceback  # noqa: PLC0415  # only who has a reason to tell pays for it

        text = "".join(traceback.format_exception(problem))
    words = f"{type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else str(reason or "")
    if not words and problem is not None:
        words = f"{type(problem).__name__}: {problem}"
    return _told(words[:_TEXT_MAX]), _told(text[-_TEXT_MAX:])


def _told(text: str) -> str:
    """What no UTF-8 can say, of a name of a file for example, as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def letter_id(source_id: str, index: int, group: str) -> str:
    """Whose put a letter is: of nobody else, for no index is given twice."""
    return f"shmq.letter/{source_id}/{index}/{group}"


def _keep_letters(target: Session) -> None:
    """Have a group there that finishes letters, so that none goes before an operator has seen to it."""
    if GROUP not in target.home.consumer_names():
        with target.home.admin():
            if GROUP not in target.home.consumer_names():
                group_options.make(target, GROUP, explicit=True, start="earliest", options={}, window=None)
    target.joined().control.recount()  # each time: whoever made it may have been killed before that


class Mover:
    """The way from one group to one other queue."""

    def __init__(self, source: Session, target: str, group: str, *, letters: bool) -> None:
        """Open the target; make it if there is none. *letters*: keep everything until an operator has finished it."""
        durability = source.options.durability
        kept = Durability.SYNC if durability.waits else Durability.PROCESS
        users = source.options.group
        made = Options(retention=Retention.acked(), durability=kept).shared_by(users).with_codec_of(source.options)
        self._source_id = source.home.queue_id.hex()
        self._epoch = source.home.journal.epoch
        self._group = group
        self._source = source
        self._letters = letters
        self._target = Session(target, options=None if _exists(target) else made, trusted=True, group=users)
        if self._target.home.queue_id == source.home.queue_id:
            self._target.close()
            raise errors.Mismatch(f"group {group!r} of {source.path} cannot move messages into its own queue")
        if volatile.is_volatile(target):
            volatile.attach(target, source.place, self._source_id)
        if letters:
            _keep_letters(self._target)
        self._producer = _Raw(self._target)
        later.ready("shmq.durability")
        from shmq.durability import Syncer  # noqa: PLC0415  # only who moves messages pays for it

        self._syncer = Syncer(self._target.home, self._target.joined())

    def put(self, move: Move, known: Mapping[tuple[Any, ...], int]) -> int:
        """
        Copy the message there, unless it is among *known*: the copy's index. It may not be on the disk yet: see `sync`.

        Raises:
            Full: there is no room for it now; it was not copied.
            SyncFailed: that queue's disk has refused before; likewise.
        """
        message = move.message
        origin = self._origin(move)
        if tuple(origin) in known:
            return known[tuple(origin)]
        self._syncer.check()
        headers: dict[str, Any] = {
            **message.headers,
            "shmq.origin": origin,
            "shmq.queue": self._source.place,
            "shmq.index": message.index,
            "shmq.group": self._group,
            "shmq.cause": move.cause,
            "shmq.reason": move.reason,
            "shmq.attempts": message.attempts,
            "shmq.traceback": move.text,
        }
        return self._producer.put(
            bytes(message.view),
            key=message.key,
            type=message.type,
            time_ns=message.time_ns,
            headers=headers,
            dedup=(letter_id(self._source_id, message.index, self._group), 1) if self._letters else None,
            timeout=0,
        )

    def sync(self, index: int) -> None:
        """
        Have the copies up to *index* on the disk, whatever both queues' durability.

        That their messages are done here may get to the disk at any moment, and a power cut must not leave them in
        neither queue.

        Raises:
            SyncPending: they were not on the disk in time.
            SyncFailed: the disk refused.
            Otherwise what a signal's handler raised meanwhile, which is meant for whoever was interrupted.
        """
        try:
            self._syncer.wait(None, index, deadline_of(_DISK_SECONDS))
        except errors.SyncPending as problem:
            cause = problem.__cause__
            if cause is None or _is_answer(cause):
                raise
        else:
            return
        raise cause

    def _origin(self, move: Move) -> list[Any]:
        return [self._source_id, self._epoch, move.message.index, self._group, move.cause]

    def has(self, message: Message) -> bool:
        """Whether there is, or was, a letter of that message."""
        self._target.sweep()
        letter = letter_id(self._source_id, message.index, self._group).encode()
        return last_of(self._target.home, self._target.chain(), letter) is not None

    def copied(self, moves: Collection[Move]) -> dict[tuple[Any, ...], int]:
        """The origins of those of them that somebody who died has copied, and where. Letters need no looking for."""
        wanted = set() if self._letters else {tuple(self._origin(move)) for move in moves if move.again}
        found: dict[tuple[Any, ...], int] = {}
        if wanted:
            for known in Reader(self._target, 0, None, reverse=True, follow=False):
                origin = known.headers.get("shmq.origin")
                if isinstance(origin, list) and tuple(origin) in wanted:
                    found[tuple(origin)] = known.index
                    if len(found) == len(wanted):
                        break
        return found

    def close(self) -> None:
        """Let go of the target."""
        self._producer.close()
        self._target.close()


class Move(NamedTuple):
    """A message that goes to another queue."""

    message: Message
    cause: str | None
    """"rejected", "attempts" or "expired"; None when only somebody who died knew it."""
    reason: str
    text: str = ""
    again: bool = False
    """Whether somebody may have copied it before."""


class _Trouble(NamedTuple):
    """A queue that took nothing."""

    rest: float
    until: float
    problem: Exception
    messages: int
    said: bool


class Moving:
    """The ways from one member of a group to other queues. For one thread at a time, but for `resting_ns`."""

    def __init__(self, session: Session, group: str, options: Mapping[str, Any]) -> None:
        """No queue is opened before something is moved there."""
        self._session = session
        self._group = group
        self._options = options
        self._movers: dict[str, Mover] = {}
        self._trouble: dict[str, _Trouble] = {}
        self._unsure: set[int] = set()
        """Indexes that were copied, though perhaps not to the disk."""

    def is_unsure(self, index: int) -> bool:
        """Whether that message was copied, though perhaps not to the disk."""
        return index in self._unsure

    def resting_ns(self, cause: str | None) -> int:
        """For how long nothing is moved for that cause, since the queue it goes to took nothing; 0: it may be tried."""
        trouble = self._trouble.get(_option(cause))
        return 0 if trouble is None else max(int((trouble.until - time.monotonic()) * 1e9), 0)

    def carry_out(self, moves: list[Move], outcomes: dict[int, Exception | None]) -> None:
        """
        Copy those messages, and have the copies on the disk by one sync for each queue.

        *outcomes*: by their places: None for what is there now, or what went wrong. Causes that are not known are
        looked for, and entered.
        """
        for at, move in enumerate(moves):
            if move.cause is None:
                try:
                    moves[at] = move._replace(cause=self._cause(move.message))
                except (errors.ShmqError, OSError) as problem:
                    if not _is_answer(problem):
                        raise
                    outcomes[at] = problem
                    self._note("dead_letter", problem, [problem])
        for option in _PATHS:
            mine = {at: move for at, move in enumerate(moves) if at not in outcomes and _option(move.cause) == option}
            if mine:
                self._carry_out(option, mine, outcomes)

    def _carry_out(self, option: str, moves: dict[int, Move], outcomes: dict[int, Exception | None]) -> None:
        put: dict[int, int] = {}
        problem = self._copy(option, moves, put, outcomes)
        unsynced = self._sync(option, max(put.values())) if put else None
        for at, move in moves.items():
            if at in put:
                outcomes[at] = unsynced
                (self._unsure.discard if unsynced is None else self._unsure.add)(move.message.index)
            elif at not in outcomes:
                outcomes[at] = problem
        failed = [outcome for at in moves if (outcome := outcomes[at]) is not None]
        self._note(option, unsynced or problem, failed)

    def _copy(
        self, option: str, moves: dict[int, Move], put: dict[int, int], outcomes: dict[int, Exception | None]
    ) -> Exception | None:
        """Copy them, up to the first that is refused by the queue: why. What hinders one alone is its outcome."""
        try:
            target = self._target(option)
            unsure = [move._replace(again=True) for move in moves.values() if move.message.index in self._unsure]
            known = target.copied([*moves.values(), *unsure])
            for at, move in moves.items():
                try:
                    put[at] = target.put(move, known)
                except (errors.TooLarge, ValueError, TypeError) as problem:
                    outcomes[at] = problem
        except (errors.ShmqError, OSError) as problem:
            if not _is_answer(problem):
                raise
            return problem
        return None

    def _sync(self, option: str, index: int) -> Exception | None:
        try:
            self._movers[option].sync(index)
        except (errors.ShmqError, OSError) as problem:
            if not _is_answer(problem):
                raise
            return problem
        return None

    def _note(self, option: str, problem: Exception | None, failed: list[Exception]) -> None:
        before = self._trouble.pop(option, None)
        if failed:
            rest = 0.0 if problem is None else min(2 * before.rest if before else _REST_FIRST, _REST_MAX)
            said = before is not None and before.said
            self._trouble[option] = _Trouble(rest, time.monotonic() + rest, problem or failed[0], len(failed), said)

    def warn(self) -> None:
        """Tell people once, until it works again, that something cannot be moved."""
        for option, trouble in self._trouble.items():
            if not trouble.said:
                self._trouble[option] = trouble._replace(said=True)
                path = path_of(self._session, self._options.get(option), self._group)
                warnings.warn(
                    f"group {self._group!r} of {self._session.path} cannot move {trouble.messages} messages to {path}: "
                    f"{trouble.problem}. They are left aside and tried again, at least once a minute; nothing is lost, "
                    "and the messages behind them go on",
                    RuntimeWarning,
                    stacklevel=3,
                )

    def _cause(self, message: Message) -> str:
        """Why somebody who died was moving it."""
        if not self._options.get("expire_to") or not message.expired:
            return "rejected"
        if not _exists(path_of(self._session, self._options.get("dead_letter"), self._group)):
            return "expired"
        return "rejected" if self._target("dead_letter").has(message) else "expired"

    def _target(self, option: str) -> Mover:
        known = self._movers.get(option)
        if known is None:
            path = path_of(self._session, self._options.get(option), self._group)
            known = self._movers[option] = Mover(self._session, path, self._group, letters=option == "dead_letter")
        return known

    def close(self) -> None:
        """Let go of them."""
        for mover in self._movers.values():
            mover.close()
        self._movers.clear()


def _is_answer(problem: BaseException) -> bool:
    """Whether that queue or its disk has said so, and no signal's handler: a time limit is a TimeoutError, too."""
    if isinstance(problem, TimeoutError):
        return problem.errno is not None
    return isinstance(problem, (errors.ShmqError, OSError))


def _exists(place: str) -> bool:
    return volatile.exists(place) if volatile.is_volatile(place) else os.path.exists(place)


def _option(cause: str | None) -> str:
    return "expire_to" if cause == "expired" else "dead_letter"

"""
Is everything in a queue whole? And if not: where, and what can still be had.

One walk over every file, the chunks as recovery walks them, in the core. It goes on behind damage, changes nothing, and
ends in bounded time and memory whatever the bytes are: a chunk is walked forward only, and a report has a limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from typing import TYPE_CHECKING, NamedTuple

from shmq import _native, errors
from shmq.storage import dedup, ledger, recover, staging, watermark
from shmq.storage.chain import break_in
from shmq.storage.directory import CHUNKS, CONSUMERS, CONTROL, DEDUP, LEDGER, QUEUE, STAGING, chunk_name

if TYPE_CHECKING:
    from shmq.storage.directory import Directory

_TRIES = 1000
"""How often to list the chunks while others retire some of them."""
PROBLEMS_MAX = 1000
"""More problems than this are counted and not told one by one."""


class Problem(NamedTuple):
    """One thing that is not as it should be: in which file, at which position, and what."""

    file: str
    position: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Verified:
    """
    What a queue holds, and what is wrong with it. True when nothing is.

    Attributes:
        messages: that are whole.
        bytes: of them, with their headers.
        chunks: files that were walked.
        padded: indexes that never became messages.
        open_claims: messages that are being written, or that a dead process left; no damage.
        lost: indexes that should have a message and have none that is whole.
        problems: what is wrong, file by file; at most PROBLEMS_MAX of them.
        more: problems beyond those.
        aside: what recoveries have set aside, which is no part of the queue any more: {epoch: names of files}; of each,
            `repair(path, aside=epoch)` makes a queue. It is no damage.
    """

    messages: int
    bytes: int
    chunks: int
    padded: int
    open_claims: int
    lost: int
    problems: tuple[Problem, ...]
    more: int
    aside: dict[int, tuple[str, ...]] = dataclasses.field(default_factory=dict, hash=False)

    def __bool__(self) -> bool:
        """Whether everything is whole."""
        return not self.problems


class _Report:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.more = self.messages = self.bytes = self.chunks = self.padded = self.claims = self.lost = 0

    def add(self, file: str, position: int, reason: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(file, position, reason))
        else:
            self.more += 1

    def take(self, part: _Report) -> None:
        """All that was found in a part."""
        for problem in part.problems:
            self.add(*problem)
        self.more += part.more
        self.messages += part.messages
        self.bytes += part.bytes
        self.chunks += part.chunks
        self.padded += part.padded
        self.claims += part.claims
        self.lost += part.lost

    def done(self) -> Verified:
        return Verified(
            messages=self.messages,
            bytes=self.bytes,
            chunks=self.chunks,
            padded=self.padded,
            open_claims=self.claims,
            lost=self.lost,
            problems=tuple(self.problems),
            more=self.more,
        )


def verify(home: Directory) -> Verified:
    """Walk everything. Never raises for damage."""
    report = _Report()
    _verify_chunks(home, report)
    _verify_consumers(home, report)
    _verify_beside(home, report)
    return dataclasses.replace(report.done(), aside=recover.set_aside(home))


def _short(problem: Exception) -> str:
    """
    What is wrong, without what was tried.

    Raises:
        OSError: nothing is, but no file can be opened.
    """
    if isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE):
        raise problem
    text = str(problem)
    return text.partition(": ")[2] or text


def _first_live(home: Directory) -> int:
    """The sequence of the first chunk that belongs to the log; as the control page has it, which rises first."""
    with contextlib.suppress(OSError, errors.ShmqError):
        fd, size = home.open(home.fd, CONTROL, writable=False)
        with fd:
            control = _native.Control(fd, size, home.queue_id, CONTROL, writable=False)
            return max(home.journal.first_live, control.first_live()) if not home.unclean() else home.journal.first_live
    return home.journal.first_live


def dropped(home: Directory) -> int:
    """What lies before this index was dropped or purged."""
    with contextlib.suppress(OSError, errors.ShmqError):
        fd, size = home.open(home.fd, CONTROL, writable=False)
        with fd:
            control = _native.Control(fd, size, home.queue_id, CONTROL, writable=False)
            return max(home.journal.dropped, 0 if home.unclean() else control.bounds().dropped)
    return home.journal.dropped


def live(home: Directory) -> tuple[int, list[tuple[int, int]]]:
    """Which chunk is the first, and all that are there, as of one moment, while others make and retire some."""
    for _ in range(_TRIES):
        first = _first_live(home)
        there = [name for name in home.chunk_names() if name[0] >= first]
        if break_in(
            there
        ):  # or that listing missed some that were linked meanwhile: a second one has all up to its last
            last = there[-1][0]
            there = [name for name in home.chunk_names() if first <= name[0] <= last]
        if _first_live(home) == first:  # else some of them were retired, before we listed them or meanwhile
            break
    return first, there


def _verify_chunks(home: Directory, report: _Report) -> None:
    first, there = live(home)
    problem = break_in(there)
    if problem:
        report.add(CHUNKS, 0, problem)
    if there and there[0][0] != first:
        report.add(CHUNKS, 0, f"chunk {first} is missing, where the queue begins")
    if not there and home.journal.ceiling == 0 and first:
        report.add(CHUNKS, 0, f"chunk {first} is missing, where the queue begins")
    for at, (sequence, base) in enumerate(there):
        following = there[at + 1] if at + 1 < len(there) else None
        found = _Report()
        _verify_chunk(home, sequence, base, following, found)
        if not found.problems or sequence >= _first_live(home):  # else it was retired, and may be another chunk by now
            report.take(found)


def _verify_chunk(
    home: Directory, sequence: int, base: int, following: tuple[int, int] | None, report: _Report
) -> None:
    name = chunk_name(base, sequence)
    file = f"{CHUNKS}/{name}"
    try:
        chunk = recover.opened(home, CHUNKS, name, sequence, base)
    except FileNotFoundError:
        return  # retired meanwhile
    except (OSError, errors.ShmqError) as problem:
        report.add(file, 0, _short(problem))
        if following is not None:
            report.lost += max(following[1] - base, 0)
        return
    report.chunks += 1
    with chunk:
        known = known_end(home, chunk, sequence)  # before the walk: it must come so far
        whole, end, survey = 0, 0, None
        for stretch in recover.stretches(chunk):
            survey = stretch.survey
            whole += survey.messages + stretch.padded()
            report.messages += survey.messages
            report.bytes += survey.bytes
            report.padded += stretch.padded()
            report.claims += survey.claims
            end = survey.stopped_ordinal
            if survey.code == _native.CORRUPT:
                report.add(file, survey.stopped, _short(Exception(survey.reason.partition("position ")[2])))
        assert survey is not None  # noqa: S101  # there is always one stretch
        if survey.code == _native.ROLL:
            _verify_link(file, survey, base, following, report)
        else:
            _verify_end(file, survey, base, known, following, report)
            end = max(end + survey.missing, known if following is None else following[1] - base)
        if not survey.claims:
            report.lost += max(end - whole, 0) if _is_damaged(file, report) else 0


def _verify_end(
    file: str, survey: _native.Survey, base: int, known: int, following: tuple[int, int] | None, report: _Report
) -> None:
    if survey.code != _native.EMPTY:
        return
    if following is not None:
        report.add(file, survey.stopped, f"it is not sealed, and {chunk_name(following[1], following[0])} is there")
    elif survey.stopped_ordinal < known:
        report.add(file, survey.stopped, f"a hole: messages up to index {base + known} were put here")


def known_end(home: Directory, chunk: _native.Bare, sequence: int) -> int:
    """The ordinal up to which something was put into a chunk, as its hint or the watermark knows; 0 if neither does."""
    known = 0
    if not home.unclean():  # else the hint may be newer than what it speaks of
        position, ordinal = chunk.hint()
        known = ordinal if position > chunk.first_position() else 0
    mark = watermark.read(home)
    if mark is not None and mark.chunk_sequence == sequence:
        known = max(known, mark.next_index - chunk.base)
    return min(known, chunk.size // _native.RECORD_BYTES_MIN)


def _is_damaged(file: str, report: _Report) -> bool:
    return any(problem.file == file for problem in report.problems)


def _verify_link(
    file: str, survey: _native.Survey, base: int, following: tuple[int, int] | None, report: _Report
) -> None:
    wanted = survey.gap_index or base + survey.stopped_ordinal
    if following is not None and following[1] != wanted:
        report.add(file, survey.stopped, f"the next chunk should begin at {wanted}, and begins at {following[1]}")


def _verify_consumers(home: Directory, report: _Report) -> None:
    for name in home.consumer_names():
        file = f"{CONSUMERS}/{name}.checkpoint"
        try:
            page = home.read(home.consumers, f"{name}.checkpoint", _native.CHECKPOINT_BYTES)
            if len(page) != _native.CHECKPOINT_BYTES:
                report.add(file, 0, f"it has {len(page)} bytes instead of {_native.CHECKPOINT_BYTES}")
            elif not recover.checkpoint_is_whole(page, home.queue_id, name):
                report.add(file, 0, "its header fails its checksum, or it belongs to another name or queue")
        except FileNotFoundError:
            continue  # dropped meanwhile
        except (OSError, errors.ShmqError) as problem:
            report.add(file, 0, _short(problem))


def _verify_beside(home: Directory, report: _Report) -> None:
    content = home.read(home.fd, QUEUE, _native.QUEUE_BYTES)
    for at in (1, 2):
        page = content[at * _native.PAGE_BYTES :][: _native.PAGE_BYTES]
        if any(page) and _native.check_journal(page) is None:
            report.add(QUEUE, at * _native.PAGE_BYTES, "a journal slot fails its checksum; the other one is used")
    for at in (3, 4):
        page = content[at * _native.PAGE_BYTES :][: _native.PAGE_BYTES]
        if any(page) and watermark.newest(bytes(3 * _native.PAGE_BYTES) + page) is None:
            report.add(QUEUE, at * _native.PAGE_BYTES, "a watermark slot fails its checksum; the other one is used")
    try:
        fd, size = home.open(home.fd, CONTROL, writable=False)
        with fd:
            _native.Control(fd, size, home.queue_id, CONTROL, writable=False)
    except FileNotFoundError:
        report.add(CONTROL, 0, "it is missing")
    except (OSError, errors.ShmqError) as problem:
        report.add(CONTROL, 0, _short(problem))
    _verify_notes(home, report)
    for name in staging.names(home):
        with contextlib.suppress(FileNotFoundError):
            try:
                with staging.open_set(home, name) as found:
                    found.handed()
                    found.manifest()
            except errors.ShmqError as problem:
                report.add(f"{STAGING}/{name}", 0, _short(problem))


def _verify_notes(home: Directory, report: _Report) -> None:
    for name, look in ((LEDGER, ledger.ledger), (DEDUP, dedup.read_note)):
        try:
            look(home)
        except (OSError, errors.ShmqError, TypeError, AttributeError) as problem:
            report.add(name, 0, _short(problem))

"""
Is everything in a queue whole? And if not: where, and what can still be had.

One walk over every file, the chunks as recovery walks them, in the core. It goes on behind damage, changes nothing, and
ends in bounded time and memory whatever the bytes are: a chunk is walked forward only, and a report has a limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import dedup, headers, ledger, pins, reach, ring, sources, staging, subscriptions, watermark
from shmq.storage.chain import break_in
from shmq.storage.paths import ADMIN, CHUNKS, CONSUMERS, CONTROL, DEDUP, LEDGER, QUEUE, STAGING, chunk_name
from shmq.storage.recover import asides, consumers
from shmq.storage.stretches import opened, stretches

if TYPE_CHECKING:
    from shmq.given import Progress
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
        at_least: whether that is the least it can be: a chunk is missing or cannot be read where the queue begins or
            ends, and nothing tells for certain how many messages were in it.
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
    at_least: bool = False

    def __bool__(self) -> bool:
        """Whether everything is whole."""
        return not self.problems


class _Report:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.more = self.messages = self.bytes = self.chunks = self.padded = self.claims = self.lost = 0
        self.at_least = False

    def add(self, file: str, position: int, reason: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(file, position, reason))
        else:
            self.more += 1

    def miss(self, reason: str, lost: int) -> None:
        """Chunks that are not there, with so many indexes at least."""
        self.add(CHUNKS, 0, reason)
        self.lost += lost
        self.at_least = True

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
        self.at_least |= part.at_least

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
            at_least=self.at_least,
        )


def verify(home: Directory, progress: Progress) -> Verified:
    """Walk everything, and tell of it after each chunk. Never raises for damage."""
    report = _Report()
    _verify_chunks(home, report, progress)
    _verify_consumers(home, report)
    _verify_beside(home, report)
    return dataclasses.replace(report.done(), aside=asides.set_aside(home))


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


def first_live(home: Directory) -> int:
    """The sequence of the first chunk that belongs to the log; as the control page has it, which rises first."""
    control = None if home.unclean() else reach.control_page(home)
    return home.journal.first_live if control is None else max(home.journal.first_live, control.first_live())


def dropped(home: Directory) -> int:
    """What lies before this index was dropped or purged."""
    control = None if home.unclean() else reach.control_page(home)
    return home.journal.dropped if control is None else max(home.journal.dropped, control.bounds().dropped)


def live(home: Directory) -> tuple[int, list[tuple[int, int]]]:
    """Which chunk is the first, and all that are there, as of one moment, while others make and retire some."""
    for _ in range(_TRIES):
        first = first_live(home)
        there = [name for name in home.chunk_names() if name[0] >= first]
        if break_in(
            there
        ):  # or that listing missed some that were linked meanwhile: a second one has all up to its last
            last = there[-1][0]
            there = [name for name in home.chunk_names() if first <= name[0] <= last]
        if first_live(home) == first:  # else some of them were retired, before we listed them or meanwhile
            break
    return first, there


def before(home: Directory, first: int, base: int) -> int | None:
    """How many indexes are missing before the first chunk that is there, when it is not *first*; None: nobody knows."""
    journal = home.read_journal()
    return max(base - journal.first_index, 0) if journal.first_live == first else None


def _verify_chunks(home: Directory, report: _Report, progress: Progress) -> None:
    known = reach.reach(home)
    first, there = live(home)
    problem = break_in(there)
    if problem:
        report.add(CHUNKS, 0, problem)
    if not there:
        _verify_none(home, first, known, report)
    elif there[0][0] != first:
        report.add(CHUNKS, 0, f"chunk {first} is missing, where the queue begins")
        missing = before(home, first, there[0][1])
        report.lost += missing or 0
        report.at_least |= missing is None
    for at, (sequence, base) in enumerate(there):
        following = there[at + 1] if at + 1 < len(there) else None
        found = _Report()
        end = _verify_chunk(home, sequence, base, following, known, found)
        if following is None and end is not None:
            _verify_behind(home, sequence, end, known, found)
        if not found.problems or sequence >= first_live(home):  # else it was retired, and may be another chunk by now
            report.take(found)
        progress("verified", report.messages, (at + 1) / len(there))


def _verify_none(home: Directory, first: int, known: reach.Reach, report: _Report) -> None:
    problem, lost = reach.behind(home, known, first - 1, home.journal.first_index)
    if problem or (home.journal.ceiling == 0 and first):
        report.miss(f"chunk {first} is missing, where the queue begins", lost)


def _verify_behind(home: Directory, sequence: int, end: int, known: reach.Reach, report: _Report) -> None:
    problem, lost = reach.behind(home, known, sequence, end)
    if problem:
        report.miss(problem, lost)


def _verify_chunk(
    home: Directory,
    sequence: int,
    base: int,
    following: tuple[int, int] | None,
    known: reach.Reach,
    report: _Report,
) -> int | None:
    """The index behind all that was put there; None when it was retired meanwhile."""
    name = chunk_name(base, sequence)
    file = f"{CHUNKS}/{name}"
    try:
        chunk = opened(home, CHUNKS, name, sequence, base)
    except FileNotFoundError:
        return None
    except (OSError, errors.ShmqError) as problem:
        report.add(file, 0, _short(problem))
        mended = None
        with contextlib.suppress(OSError, errors.ShmqError):
            mended = headers.mended(home, home.chunks, name, sequence, base)
        if mended is None:
            return _verify_unreadable(home, sequence, base, following, known, report)
        chunk = mended.chunk
        report.at_least |= mended.is_cut and following is None
    report.chunks += 1
    with chunk:
        upto = reach.known_end(home, chunk, sequence, known)
        whole, end, survey = 0, 0, None
        for stretch in stretches(chunk):
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
        sealed = survey.code == _native.ROLL
        if sealed:
            _verify_link(file, survey, base, following, report)
        else:
            _verify_end(file, survey, base, upto, following, report)
            end = max(end + survey.missing, upto if following is None else following[1] - base)
        if not survey.claims:
            report.lost += max(end - whole, 0) if _is_damaged(file, report) else 0
        behind = (survey.gap_index or base + end) if sealed else base + end
        if sealed and following is not None:  # what is missing between the two
            report.lost += max(following[1] - behind, 0)
        return behind


def _verify_unreadable(
    home: Directory,
    sequence: int,
    base: int,
    following: tuple[int, int] | None,
    known: reach.Reach,
    report: _Report,
) -> int:
    """As `_verify_chunk`, of one in which nothing can be read."""
    if following is not None:
        report.lost += max(following[1] - base, 0)
        return following[1]
    lost = reach.known_in_damaged(home, home.chunks, chunk_name(base, sequence), sequence, base, known)
    report.lost += lost
    report.at_least = True
    return base + lost


def _verify_end(
    file: str, survey: _native.Survey, base: int, known: int, following: tuple[int, int] | None, report: _Report
) -> None:
    if survey.code != _native.EMPTY:
        return
    if following is not None:
        report.add(file, survey.stopped, f"it is not sealed, and {chunk_name(following[1], following[0])} is there")
    elif survey.stopped_ordinal < known:
        report.add(file, survey.stopped, f"a hole: messages up to index {base + known} were put here")


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
        found = _Report()
        _verify_name(home, name, found)
        if not found.problems or name in home.consumer_names():  # else it was dropped meanwhile
            report.take(found)


def _verify_name(home: Directory, name: str, report: _Report) -> None:
    file = f"{CONSUMERS}/{name}.checkpoint"
    try:
        page = home.read(home.consumers, f"{name}.checkpoint", _native.CHECKPOINT_BYTES)
        if len(page) != _native.CHECKPOINT_BYTES:
            report.add(file, 0, f"it has {len(page)} bytes instead of {_native.CHECKPOINT_BYTES}")
        elif not consumers.checkpoint_is_whole(page, home.queue_id, name):
            report.add(file, 0, "its header fails its checksum, or it belongs to another name or queue")
        elif home.checkpoint(name).ring:
            for ending, look in ((".group", ring.options), (".ring", ring.extent)):
                file = f"{CONSUMERS}/{name}{ending}"
                look(home, name)
            file = f"{CONSUMERS}/{name}{sources.ENDING}"
            sources.read(home, name)
        file = f"{CONSUMERS}/{name}{subscriptions.ENDING}"
        if not report.problems:
            subscriptions.read(home, name, home.checkpoint(name))
        file = f"{CONSUMERS}/{name}.hold"
        pins.check_hold(home, name)
    except FileNotFoundError:
        return  # dropped meanwhile
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
    _verify_lock(home, report)
    _verify_notes(home, report)
    for name in staging.names(home):
        with contextlib.suppress(FileNotFoundError):
            try:
                with staging.open_set(home, name) as found:
                    found.handed()
                    found.manifest()
            except errors.ShmqError as problem:
                report.add(f"{STAGING}/{name}", 0, _short(problem))


def _verify_lock(home: Directory, report: _Report) -> None:
    try:
        home.open(home.fd, ADMIN, writable=False)[0].close()
    except FileNotFoundError:
        pass  # whoever needs it makes it
    except (OSError, errors.ShmqError) as problem:
        report.add(ADMIN, 0, _short(problem))


def _verify_notes(home: Directory, report: _Report) -> None:
    for name, look in ((LEDGER, ledger.ledger), (DEDUP, dedup.read_note)):
        try:
            look(home)
        except (OSError, errors.ShmqError, TypeError, AttributeError) as problem:
            report.add(name, 0, _short(problem))

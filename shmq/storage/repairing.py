"""
A clean copy of a damaged queue, and a queue of what a recovery has set aside: all that is whole, where it was.

What is not whole becomes padding (cleaning.py). What is missing is counted, and so is what nobody can count.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import directory, files, headers, new_chunks, reach, verify
from shmq.storage.cleaning import Written, clean
from shmq.storage.copying import TRIES, copy_consumers, copy_dedup, copy_ledger, held_back
from shmq.storage.paths import ASIDE, CHUNKS, DEDUP, LEDGER, chunk_name, parse_chunk_name
from shmq.storage.recover import apply, plan
from shmq.storage.target import Target

if TYPE_CHECKING:
    from shmq.given import Progress
    from shmq.storage.directory import Directory


@dataclasses.dataclass(frozen=True)
class Repaired:
    """
    A clean copy of a damaged queue. True when nothing was lost.

    Attributes:
        path: where it is.
        messages: that are whole, and in it.
        lost: indexes that have no message any more; they are padding now, or lie before the first or behind the last
            one that is there.
        problems: what was wrong.
        kept: where the damaged queue is, when the clean one took its place; else empty. Of one that was whole there is
            no other, and it was left as it is.
        gone: files beside the chunks that could not be saved: a consumer whose checkpoint is gone begins anew; without
            the ledger or the memory of dedup, a batch that was adopted or put once can be so again.
        at_least: whether more may be lost than is counted: a chunk was missing or could not be read where the queue
            began or ended, and nothing tells for certain how many messages were in it.
        complete: whether nothing was lost.
    """

    path: str
    messages: int
    lost: int
    problems: tuple[verify.Problem, ...]
    kept: str = ""
    gone: tuple[str, ...] = ()
    at_least: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing was lost."""
        return not (self.lost or self.gone or self.at_least)

    def __bool__(self) -> bool:
        """Whether nothing was lost."""
        return self.complete


class _Source(NamedTuple):
    """A chunk file to be saved from, in whatever folder."""

    sequence: int
    base: int
    folder: int
    name: str


def salvage(home: Directory, to: str | None, epoch: int, progress: Progress) -> Repaired:
    """
    Write what the recovery of that epoch has set aside into a queue of its own, under the indexes that it had.

    Raises:
        NotFound: that recovery has set no chunk aside.
        Unsafe: there is something at *to*.
    """
    target = os.path.abspath(to if to is not None else f"{home.path}.aside-{epoch}")
    with contextlib.ExitStack() as opened:
        sources = []
        with contextlib.suppress(errors.NotFound):
            folder = opened.enter_context(home.below(ASIDE))
            for name in files.names_in(folder):
                chunk = parse_chunk_name(name.removeprefix(f"{epoch:08x}-"))
                if chunk is not None and name.startswith(f"{epoch:08x}-"):
                    sources.append(_Source(*chunk, folder, name))
        if not sources:
            raise errors.NotFound(f"no recovery of epoch {epoch} has set a chunk of {home.path} aside")
        with Target(home, target, home.queue_id) as made:
            written = _write_sources(home, made, _one_each(sources), reach.NOWHERE, progress)
            assert written is not None  # noqa: S101  # what is set aside is not retired
        return Repaired(target, written.messages, written.lost, (), at_least=written.at_least)


def repair(home: Directory, to: str | None, progress: Progress, *, in_place: bool) -> Repaired:
    """
    Write everything that is whole, under the indexes that it had, into a new directory; what is not becomes padding.
    It is verified before; of both is told after each chunk.

    Raises:
        Unsafe: there is something at *to*.
        Busy: in_place, and somebody has the queue open.
        Fenced: in_place, and it follows another queue, which has what is damaged here.
    """
    found = verify.verify(home, progress)
    if in_place and found:
        return Repaired(home.path, found.messages, 0, ())
    if in_place:
        with home.admin():
            if apply.somebody_is_there(home):
                raise errors.Busy(f"cannot repair {home.path} in place: somebody has it open; nothing was changed")
            part = home.read_journal().flags
            if part & _native.JOURNAL_FOLLOWER:
                raise errors.Fenced(
                    f"cannot repair {home.path} in place: it follows another queue, which has what is damaged here. "
                    "Move it away and replicate anew, or repair it to another place; nothing was changed"
                )
            clean = f"{home.path}.clean-{os.urandom(4).hex()}"
            part &= _native.JOURNAL_FENCED | _native.JOURNAL_PROMOTED
            saved = _write_clean(home, clean, progress, part)
            _check_clean(clean, saved)
            home.refuse_moved("repair")
            kept = _free_name(f"{home.path}.damaged")
            os.rename(home.path, kept)
            os.rename(clean, home.path)
        return saved.repaired(home.path, found.problems, kept)
    target = os.path.abspath(to if to is not None else f"{home.path}.repaired")
    with held_back(home):
        saved = _write_clean(home, target, progress)
    _check_clean(target, saved)
    return saved.repaired(target, found.problems)


def _check_clean(path: str, saved: _Saved) -> None:
    """
    Look at what was made as its first opening will.

    Raises:
        Corrupt: that would not keep everything.
    """
    with contextlib.closing(directory.Directory(path, read_only=True)) as made:
        whole = plan.make_plan(made)
    kept = sum(piece.survey.messages for piece in whole.pieces)
    if kept != saved.messages:
        raise errors.Corrupt(
            f"{path} was written with {saved.messages} messages, and opening it would keep {kept} ({whole.reason}); it "
            "was left there, and the damaged queue as it was"
        )


def _free_name(path: str) -> str:
    name, number = path, 0
    while os.path.lexists(name):
        number += 1
        name = f"{path}-{number}"
    return name


@dataclasses.dataclass
class _Saved:
    """What is in a clean copy, and what is not."""

    messages: int = 0
    lost: int = 0
    at_least: bool = False
    gone: tuple[str, ...] = ()

    def repaired(self, path: str, problems: tuple[verify.Problem, ...], kept: str = "") -> Repaired:
        return Repaired(path, self.messages, self.lost, problems, kept, self.gone, self.at_least)


def _write_clean(home: Directory, to: str, progress: Progress, part: int = 0) -> _Saved:
    with Target(home, to, home.queue_id) as target:
        target.part = part
        copy_consumers(home, target)
        for name, copy_one in ((LEDGER, copy_ledger), (DEDUP, copy_dedup)):
            try:
                copy_one(home, target, _native.STAGED)
            except (OSError, errors.ShmqError, TypeError, AttributeError):  # as `verify` names it
                target.gone.append(name)
        for _ in range(TRIES):
            known = reach.reach(home)
            first, live = verify.live(home)
            there = _one_each([_Source(*name, home.chunks, chunk_name(name[1], name[0])) for name in live])
            saved = _write_sources(home, target, there, known, progress, first)
            if saved is not None:
                saved.gone = tuple(target.gone)
                return saved
            target.forget_chunks()
    raise errors.Gone(
        f"cannot repair {home.path}: {TRIES} times all that was there was retired before it was written; nothing was "
        "changed. Opened for writing, a queue holds back what is being written"
    )


def _write_sources(
    home: Directory,
    target: Target,
    there: list[_Source],
    known: reach.Reach,
    progress: Progress,
    first: int | None = None,
) -> _Saved | None:
    """
    Write every chunk, the first of which should be *first*. What is retired before it was read is no loss, and what
    was written before that goes, too; None when that is all.
    """
    saved = _Saved()
    top = max(home.journal.ceiling, known.end)
    begin: _Source | None = None
    sequence = home.journal.first_live
    end = home.journal.first_index
    if there and first is not None and there[0].sequence > first:
        missing = verify.before(home, first, there[0].base)
        saved.lost, saved.at_least = missing or 0, missing is None
    for at, (source, following) in enumerate(itertools.zip_longest(there, there[1:])):
        if begin is None:
            begin, sequence = source, source.sequence
        while sequence < source.sequence:  # missing: an empty one takes its place
            _write_empty(home, target, source.base, sequence, source.base)
            sequence += 1
        written = _write_chunk(home, target, source, None if following is None else following.base, known)
        if first is not None and (written.lost or following is None) and source.sequence < verify.first_live(home):
            target.forget_chunks()
            saved, begin = _Saved(), None
            continue
        saved.messages += written.messages
        saved.lost += written.lost
        saved.at_least |= written.at_least
        sequence = source.sequence + 1
        end = written.end
        top = max(top, end, source.base + written.room)
        progress("repaired", saved.messages, (at + 1) / len(there))
    if there and begin is None:
        return None
    if first is not None:
        problem, lost = reach.behind(home, known, sequence - 1, end)
        if problem:
            saved.lost += lost
            saved.at_least = True
            top = max(top, end + max(lost, reach.ordinals_max(home)))
    target.finish(
        sequence if begin is None else begin.sequence, home.journal.first_index if begin is None else begin.base, top
    )
    return saved


def _one_each(there: list[_Source]) -> list[_Source]:
    """One of each sequence, with bases that ascend; not from hopelessly far apart."""
    chosen: list[_Source] = []
    for source in sorted(there):
        if source.base > plan.INDEX_MAX:
            continue
        before = chosen[-1] if chosen else None
        if before and (
            source.base < before.base or source.sequence == before.sequence or source.sequence > before.sequence + 1000
        ):
            continue
        chosen.append(source)
    return chosen


def _write_empty(home: Directory, target: Target, base: int, sequence: int, next_base: int) -> None:
    size = 4 * _native.PAGE_BYTES
    with target.file(target.chunks, chunk_name(base, sequence), size) as fd:
        new_chunks.format_chunk(home, fd, size, base, sequence)
        with target.chunk(fd, size, base, sequence) as made:
            made.cut(made.first_position(), next_base)


def _write_chunk(home: Directory, target: Target, saved: _Source, next_base: int | None, known: reach.Reach) -> Written:
    """One chunk, as far as it can be saved."""
    sequence, base = saved.sequence, saved.base
    name = chunk_name(base, sequence)
    with contextlib.ExitStack() as opened:
        source, size = None, 0
        with contextlib.suppress(OSError, errors.ShmqError):
            source, size = home.open(saved.folder, saved.name, writable=False)
            opened.enter_context(source)
        with target.file(target.chunks, name, max(size, 4 * _native.PAGE_BYTES)) as fd:
            if source is not None and size <= _native.CHUNK_BYTES_MAX:
                with contextlib.suppress(errors.Corrupt, errors.BadFormat):
                    files.transfer(source, fd, size, whole=True)
                    made, is_cut = _made_of(home, target, fd, size, base, sequence)
                    with made:
                        is_last = next_base is None and saved.name == name
                        upto = reach.known_end(home, made, sequence, known) if is_last else 0
                        return clean(made, base, next_base, upto)._replace(at_least=is_cut and next_base is None)
            os.truncate(fd, 0)
            os.posix_fallocate(fd, 0, 4 * _native.PAGE_BYTES)
            new_chunks.format_chunk(home, fd, 4 * _native.PAGE_BYTES, base, sequence)
            with target.chunk(fd, 4 * _native.PAGE_BYTES, base, sequence) as made:
                made.cut(made.first_position(), base if next_base is None else next_base)
    if next_base is not None:
        return Written(0, next_base - base, next_base)
    lost = reach.known_in_damaged(home, saved.folder, saved.name, sequence, base, known)
    return Written(0, lost, base + lost, reach.ordinals_max(home, size), at_least=True)


def _made_of(
    home: Directory, target: Target, fd: int, size: int, base: int, sequence: int
) -> tuple[_native.DetachedChunk, bool]:
    """
    The chunk that was copied there, with another header if its own is damaged; and whether its file was cut short.

    Raises:
        Corrupt, BadFormat: nothing proves what its header was.
    """
    try:
        return target.chunk(fd, size, base, sequence), False
    except (errors.Corrupt, errors.BadFormat) as problem:
        for header, whole in headers.candidates(home, fd, base, sequence):
            os.truncate(fd, min(size, whole))
            try:
                os.posix_fallocate(fd, 0, whole)
            except OSError as full:
                raise files.disk_full(f"{target.path}/{CHUNKS}", whole, full) from None
            os.pwrite(fd, header, 0)
            with contextlib.suppress(errors.Corrupt, errors.BadFormat):
                return target.chunk(fd, whole, base, sequence), size < whole
        raise problem from None

"""A plan, carried out: every write that a recovery makes, in the order that the package tells."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

from shmq import _native, errors
from shmq._native import layout
from shmq.hints import TYPE_CHECKING
from shmq.storage import boots, dedup, eras, files, ledger, records, staging, sync, watermark
from shmq.storage.paths import CHUNKS, CONTROL, LEDGER_NEW, STAGING, chunk_name
from shmq.storage.recover.asides import Aside
from shmq.storage.recover.consumers import settle_consumers
from shmq.storage.recover.plan import Plan, WholeSet, cut_at, make_plan
from shmq.storage.recover.progress import Progress, Recovery, administering
from shmq.storage.stretches import opened, whole_behind
from shmq.storage.view import Piece, end_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmq.storage.directory import Directory
    from shmq.storage.recover.plan import End

_FLOCK = struct.Struct("hhqqi4x")


def recover(home: Directory) -> Recovery | None:
    """
    Recover the queue, unless somebody has just done so: then None.

    Raises:
        Corrupt: something below the watermark is not whole. Nothing was changed.
        Busy: somebody administers it for long, or has it open in another boot.
    """
    with administering(home):
        home.read_journal()
        home.look_at_boot()
        if not home.unclean():
            return None
        if somebody_is_there(home):
            if home.same_boot:  # the same file under another device number: no copy after all
                home.copied = False
                return None
            raise errors.Busy(f"cannot recover {home.path}: a process that has it open believes in another boot")
        return _carry_out(home, make_plan(home))


def somebody_is_there(home: Directory) -> bool:
    """Whether any seat's lock is held."""
    try:
        fd, _ = home.open(home.fd, CONTROL, writable=False)
    except FileNotFoundError:
        return False
    with fd:
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, layout.LOCK_BASE, layout.OWNER_SLOTS, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)


def promote(home: Directory, control: _native.Control, changed: bytes | None = None) -> Recovery:
    """
    Have a queue that follows another one be one of its own, beside whoever reads it: it ends where it is whole, and
    what is put from now on is of a new epoch. *changed*: what stands beside its options from then on, by one step.

    Raises:
        Corrupt: something below the watermark is not whole. Nothing was changed.
        Busy: somebody administers it for long.
    """
    with administering(home):
        home.read_journal()
        return _carry_out(home, make_plan(home, promoted=True), control, changed)


def cut_back(home: Directory, end: End) -> Recovery:
    """
    Have a queue follow another one, with what both have: it ends there, and what lies behind that is set aside. Killed
    anywhere, it is a follower that recovers, and can be cut again.

    Raises:
        Busy: somebody has it open; nothing was changed.
        Corrupt: something before that place is not whole.
        DiskFull: there is no room for a copy of that chunk; nothing was cut.
    """
    with administering(home):
        journal = home.read_journal()
        if somebody_is_there(home):
            raise errors.Busy(f"cannot set aside what is in {home.path}: somebody has it open; nothing was changed")
        others = journal.flags & ~(_native.JOURNAL_FENCED | _native.JOURNAL_PROMOTED)
        # Of no boot, so whoever opens it next finishes this; and an epoch for each time, as what lies aside is named by
        # it, and the watermark goes back in it.
        home.write_journal(
            journal._replace(
                epoch=journal.epoch + 1,
                flags=others | _native.JOURNAL_FOLLOWER,
                boot_id=bytes(len(journal.boot_id)),
                changed=eras.with_part(journal.changed, None),  # what it has promised may go: it is another one
            )
        )
        watermark.write(home, end.sequence, end.position, end.next_index)
        return _carry_out(home, cut_at(make_plan(home), end))


def _carry_out(
    home: Directory, plan: Plan, control: _native.Control | None = None, changed: bytes | None = None
) -> Recovery:
    """*control*: the page of a queue that is open, and is promoted."""
    aside = Aside(home)
    over, swept = _settle_staging(home, plan, aside)
    cut = _settle_chunks(home, plan, aside)
    _remove_sets(home, over)  # not before their chunks are on the disk as they are to be
    moved = settle_consumers(home, plan, aside)
    aside.sync()
    before = home.journal
    if control is None:
        _renew_control(home, plan)
    _commit(home, plan, changed)
    if control is not None:
        control.add_padding(plan.next_index - plan.end)
        control.wake()
    last = plan.pieces[-1] if plan.pieces else None
    return Recovery(
        from_epoch=before.epoch,
        to_epoch=home.journal.epoch,
        kept=sum(_kept(piece) for piece in plan.pieces),
        end=plan.end,
        next_index=plan.next_index,
        cut_bytes=cut,
        where=(f"{CHUNKS}/{chunk_name(last.base, last.sequence)}", end_of(last.survey)) if last else None,
        reason=plan.reason,
        aside=tuple(aside.names),
        aside_messages=aside.messages,
        moved=moved,
        adopted=len(plan.sets),
        swept=swept,
    )


def _kept(piece: Piece) -> int:
    return piece.survey.messages if piece.looked else piece.survey.stopped_ordinal


# ---- staging
def _settle_staging(home: Directory, plan: Plan, aside: Aside) -> tuple[set[str], int]:
    """Finish what was committed and forget what was not: the sets that are over, and how many were forgotten."""
    known = plan.ledger or {}
    batches = dict(known)
    over: set[str] = set()
    swept = 0
    for producer, batch in known.items():
        if batch.indexes and batch.first + batch.indexes > plan.end:  # it is not there any more: it may come again
            batches[producer] = records.Adopted(batch.sequence - 1, batch.first, 0)
    for name in staging.names(home):
        with contextlib.suppress(FileNotFoundError), staging.open_set(home, name) as found:
            place = plan.sets.get(found.adoption)
            if name in plan.refused:
                aside.take(STAGING, name)
            elif place is not None:
                over |= {name, *_move_in(home, found, place, batches)}
    if batches != known:
        ledger.write_ledger(home, batches)
    for name in staging.names(home):  # what was handed over, and is in nobody's SEAL, goes on waiting
        with contextlib.suppress(FileNotFoundError), staging.open_set(home, name) as found:
            if name not in over and ledger.forgotten(found):
                found.remove()
                swept += 1
    with contextlib.suppress(FileNotFoundError):
        os.unlink(LEDGER_NEW, dir_fd=home.fd)
    dedup.rewind(home, plan.end, last=plan.pieces[-1].sequence if plan.pieces else -1)
    return over, swept


def _remove_sets(home: Directory, over: set[str]) -> None:
    for name in staging.names(home):
        if name in over:
            with contextlib.suppress(FileNotFoundError), staging.open_set(home, name) as found:
                found.remove()


def _move_in(
    home: Directory, found: staging.Set, place: WholeSet, batches: dict[bytes, records.Adopted]
) -> Sequence[str]:
    """Move its chunks to their places: the sets that go with it."""
    try:
        manifest = found.manifest()
    except FileNotFoundError:
        return ()  # it is in the ledger, and was being removed
    base = place.base
    for number, (file, count) in enumerate(zip(manifest.files, manifest.counts, strict=True)):
        staging.move(found, file, chunk_name(base, place.first + number))
        base += count
    sync.directory(home.chunks, "chunks")
    ledger.enter(manifest, place.base, batches)
    return manifest.parts


# ---- chunks
def _settle_chunks(home: Directory, plan: Plan, aside: Aside) -> int:
    """Put every kept chunk in order, end the last one, and move away what lies behind: how many bytes were cut."""
    cut = 0
    progress = Progress(home, len(plan.pieces) + len(plan.behind), "settling")
    for piece in plan.pieces:
        last = piece is plan.pieces[-1]
        progress.step()
        with opened(
            home, CHUNKS, chunk_name(piece.base, piece.sequence), piece.sequence, piece.base, writable=True
        ) as chunk:
            survey = piece.survey
            if last:
                behind = whole_behind(chunk, end_of(survey), survey.ordinal)
                if behind:
                    aside.keep(chunk_name(piece.base, piece.sequence), behind)
                cut = _end_last(chunk, plan, survey)
            elif piece.looked or not chunk.indexed(survey.stopped_ordinal):
                # Not behind a GAP: whoever begins at the hint must meet it.
                chunk.set_in_order(survey.gap_position or survey.stopped, survey.stopped_ordinal)
        if last or home.copied:
            _sync(home, chunk_name(piece.base, piece.sequence))
    for sequence, base in plan.behind:
        progress.step()
        _take_away(home, sequence, base, aside)
    for sequence, base in plan.below:
        home.drop_chunk(base, sequence)
    for name in files.names_in(home.chunks):
        if name.startswith("retired-"):  # whether it is all zeros on the disk is not known
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=home.chunks)
    sync.directory(home.chunks, "chunks")
    return cut


def _end_last(chunk: _native.DetachedChunk, plan: Plan, survey: _native.Survey) -> int:
    """End the last chunk: how many bytes were cut. One that follows another goes on in it, unless that was sealed."""
    if not plan.follows:
        cut = chunk.cut(end_of(survey), plan.next_index)
        chunk.set_in_order(end_of(survey), survey.ordinal)
        return cut
    if survey.code == _native.ROLL and not plan.refused:
        chunk.zero_from(survey.stopped + layout.SEAL_BYTES)
        chunk.set_in_order(survey.gap_position or survey.stopped, survey.stopped_ordinal)
        return 0
    chunk.zero_from(end_of(survey))
    chunk.set_in_order(end_of(survey), survey.ordinal)
    return 0


def _sync(home: Directory, name: str) -> None:
    fd, _ = home.open(home.chunks, name, writable=False)
    with fd:
        sync.data(fd, "chunk")


def _take_away(home: Directory, sequence: int, base: int, aside: Aside) -> None:
    """A chunk behind the cut: kept aside if anything was put there."""
    name = chunk_name(base, sequence)
    try:
        with opened(home, CHUNKS, name, sequence, base) as chunk:
            survey = chunk.survey()
            empty = survey.stopped == chunk.first_position() and survey.code in (_native.EMPTY, _native.ROLL)
            aside.messages += whole_behind(chunk)
    except FileNotFoundError:
        return
    except errors.ShmqError:
        empty = _is_zero(home, name)
    if empty:
        home.drop_chunk(base, sequence)
    else:
        aside.take(CHUNKS, name)


def _is_zero(home: Directory, name: str) -> bool:
    """Whether a file begins with zeros only, as one whose content never reached the disk."""
    with contextlib.suppress(OSError, errors.ShmqError):
        return not any(home.read(home.chunks, name, _native.PAGE_BYTES)[: _native.PAGE_BYTES])
    return False


# ---- the end
_U64 = struct.Struct("<Q")


def _renew_control(home: Directory, plan: Plan) -> None:
    """Nobody is here; the last chunk is known; and so is how many indexes have no message."""
    journal = home.journal
    finished = bool(journal.flags & _native.JOURNAL_FINISHED)
    page = bytearray(_native.format_control(home.queue_id, finished=finished))
    _U64.pack_into(page, layout.control.first_live, journal.first_live)
    if plan.pieces:
        _U64.pack_into(page, layout.control.newest, plan.pieces[-1].sequence + 1)
        _U64.pack_into(page, layout.control.newest_base, plan.pieces[-1].base)
        first = plan.pieces[0].base
        kept = sum(_kept(piece) for piece in plan.pieces)
        _U64.pack_into(page, layout.control.padded, plan.next_index - first - kept)
        if not all(piece.looked for piece in plan.pieces):
            _U64.pack_into(page, layout.control.pads_doubted, 1)  # whoever asks counts
    if plan.mark is not None:
        _U64.pack_into(page, layout.control.durable, plan.mark.next_index)
        _U64.pack_into(page, layout.control.durable_chunk, max(plan.mark.chunk_sequence, journal.first_live) + 1)
    with contextlib.suppress(FileNotFoundError):
        fd, size = home.open(home.fd, CONTROL, writable=True)
        with fd:
            if size == len(page):
                if os.pread(fd, size, 0) != page:
                    sync.write(fd, bytes(page), 0, "control")
                    sync.data(fd, "control")
                return
        os.unlink(CONTROL, dir_fd=home.fd)
    files.make_file(home.fd, CONTROL, bytes(page), home.path, "control")
    sync.directory(home.fd, "home")


def _commit(home: Directory, plan: Plan, changed: bytes | None) -> None:
    journal = home.journal
    control = os.stat(CONTROL, dir_fd=home.fd, follow_symlinks=False)
    # Without what a failed sync left: what was put before that was on the disk.
    flags = journal.flags & ~_native.JOURNAL_SYNC_FAILED
    if flags & _native.JOURNAL_FOLLOWER and not plan.follows:
        flags = flags & ~_native.JOURNAL_FOLLOWER | _native.JOURNAL_PROMOTED
    home.write_journal(
        journal._replace(
            epoch=journal.epoch + (not plan.follows),
            boot_id=boots.boot_id(),
            ceiling=max(journal.ceiling, plan.next_index),
            first_index=journal.first_index if plan.pieces else plan.next_index,
            device=control.st_dev,
            inode=control.st_ino,
            flags=flags,
            changed=journal.changed if changed is None else changed,
        )
    )
    home.look_at_boot()

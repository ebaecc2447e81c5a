"""
What the first opening after a reboot does, when only what is on the disk counts; or that of a copied directory.

First a plan is made, and nothing is changed: the chain is walked, every word, message and batch is checked, up to the
first that does not validate. That begins with the chunk where the watermark stands: of those before it, to all of which
the disk has agreed, only the ends are looked at. In that chunk no such place may be below the watermark, else the
queue is Corrupt. Then the plan is carried out, in this order, each step synced before the next:

    staging/     what a kept SEAL has committed moves to its place, then the ledger; the rest goes
    chunks/      hints and indexes anew; the last chunk ends with zeros, GAP and SEAL; what lies behind goes to aside/
    consumers/   heads that are ahead move back
    control      anew
    queue.shmq   the journal, with the new epoch and this boot: with that, the queue is recovered

All of it is under the administrative lock, and every step depends only on what is on the disk and is not undone by
itself: whoever is killed in it leaves something of which the next one makes the same bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import re
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from shmq import _native, errors, later
from shmq.storage import boots, dedup, files, ledger, records, ring, spares, staging, sync, watermark
from shmq.storage.directory import ASIDE, CHUNKS, CONSUMERS, CONTROL, LEDGER_NEW, QUEUE, STAGING, chunk_name
from shmq.storage.view import Piece, View, end_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shmq.storage.directory import Directory

INDEX_MAX = 1 << 62
_LOCK_BASE, _SEATS = 1 << 40, 1024  # layout.h
_FLOCK = struct.Struct("hhqqi4x")
_FREE, _META, _SEAL = 0, 3, 5  # likewise, the states of a word


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


class _Adopted(NamedTuple):
    """A staged set that a kept SEAL names, all of it whole."""

    first: int
    base: int


@dataclasses.dataclass
class Plan:
    """What is whole in a queue, and what is to be done about the rest."""

    pieces: list[Piece]
    end: int
    """The index behind the last one kept."""
    next_index: int
    reason: str
    behind: list[tuple[int, int]]
    """(sequence, base) of chunk files that are not in the chain."""
    below: list[tuple[int, int]]
    sets: dict[int, _Adopted]
    refused: list[str]
    """Staged sets that a SEAL named, and that were not whole."""
    mark: _native.Watermark | None
    ledger: dict[bytes, records.Adopted] | None
    """None when it cannot be read, and nothing has to be entered."""


# ---------------------------------------------------------------- waiting for it
PATIENCE = 30.0
"""Seconds that an opener waits for whoever recovers, without progress."""
_BEAT_NS, _TELL_NS = 250_000_000, 5_000_000_000


class _Progress:
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
    later.ready("logging")
    import logging  # noqa: PLC0415  # rare

    logging.getLogger("shmq").warning("%s", text)


def tell_of(home: Directory, done: Recovery | None) -> None:
    """Where whole messages are not in the queue any more, a line in the log, since few ask for `Queue.recovery`."""
    if done is not None and done.aside_messages:
        _tell(
            f"recovering {home.path} kept {done.kept:,} messages; {done.aside_messages:,} more that were whole lay "
            f"behind damage ({done.reason}) and are in its folder aside/: `shmq repair {home.path} --aside "
            f"{done.from_epoch}`, or shmq.repair(path, aside={done.from_epoch}), makes a queue of them"
        )


@contextlib.contextmanager
def _administering(home: Directory) -> Iterator[None]:
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


# ---------------------------------------------------------------- looking
class _Looker:
    """Walks the chain once."""

    def __init__(self, home: Directory, mark: _native.Watermark | None) -> None:
        self._home = home
        self._mark = mark
        self._there = set(home.chunk_names())
        self._progress = _Progress(home, len(self._there))
        self.reason = "nothing was found behind it"
        self.manifests: dict[int, records.Manifest] = {}
        self.damaged: set[int] = set()
        """Sets whose manifest is there, and says nothing."""
        for name in staging.names(home):
            with contextlib.suppress(FileNotFoundError), staging.open_set(home, name) as found:
                try:
                    self.manifests[found.adoption] = found.manifest()
                except errors.Corrupt:
                    self.damaged.add(found.adoption)

    def _trusted(self, sequence: int) -> int:
        """Up to which position of that chunk the disk is known to agree."""
        if self._mark is None or sequence > self._mark.chunk_sequence:
            return 0
        return self._mark.position if sequence == self._mark.chunk_sequence else _native.CHUNK_BYTES_MAX

    def look(self, sequence: int, base: int, adoption: int, number: int) -> Piece | None:
        """The chunk of that name, which came as the *number*-th of *adoption*; None when it is not there, or none."""
        manifest = self.manifests.get(adoption)
        if manifest is not None and number >= len(manifest.files):
            return None
        try:
            name = chunk_name(base, sequence)
            piece = self._survey(CHUNKS, name, sequence, base)
        except FileNotFoundError:
            self.reason = f"{name} is missing"
            if manifest is None:
                return None
            try:
                staged = staging.path_of(adoption, staging.check_file(manifest.files[number]))
                folder, _, file = staged.rpartition("/")
                piece = self._survey(folder, file, sequence, base)
            except (FileNotFoundError, errors.ShmqError) as problem:
                self.reason = str(problem)
                return None
        except errors.ShmqError as problem:
            self.reason = str(problem)
            return None
        if manifest is not None and piece.chunk_id != manifest.chunk_ids[number]:
            self.reason = f"{piece.path} is not the chunk that was staged"
            return None
        return piece

    def counts_up_to(self, piece: Piece, adoption: int) -> list[int]:
        """
        The ordinals of the chunks of that set up to this one; empty when this is none of them, and the set begins
        behind it. It is one of them where the chain begins in a set that is still there: its SEALs, but for the last
        one, name their own set.
        """
        manifest = self.manifests.get(adoption)
        if manifest is None or piece.chunk_id not in manifest.chunk_ids:
            return []
        return manifest.counts[: manifest.chunk_ids.index(piece.chunk_id) + 1]

    def is_over(self, adoption: int, last: Piece) -> bool:
        """
        Whether that set is moved, and only what a recovery writes behind its *last* chunk is not there.

        Its manifest goes when all its chunks are on the disk, each with its SEAL, in whose place a recovery puts a GAP
        and another SEAL. What else is not there is damage, and the set goes as a whole.
        """
        if adoption in self.manifests or adoption in self.damaged:
            return False
        if last.survey.code == _native.ROLL or any(sequence > last.sequence for sequence, _ in self._there):
            return False
        with opened(self._home, last.folder, last.file, last.sequence, last.base) as chunk:
            ends = chunk.state(last.survey.stopped) in (_FREE, _META, _SEAL)
            return ends and not _whole_behind(chunk, end_of(last.survey), last.survey.ordinal)

    def _survey(self, folder: str, file: str, sequence: int, base: int) -> Piece:
        with opened(self._home, folder, file, sequence, base) as chunk:
            self._progress.step()
            end = self._known_end(chunk, sequence) if folder == CHUNKS else None
            survey = end or chunk.survey(trusted=self._trusted(sequence))
            return Piece(sequence, base, folder, file, chunk.size, survey, chunk.chunk_id(), end is None)

    def _known_end(self, chunk: _native.DetachedChunk, sequence: int) -> _native.Survey | None:
        """
        The end of a chunk that lies below the watermark as a whole, if it is what its successor's name says: then the
        disk has agreed to all of it, and it is looked at when it is read.
        """
        if self._mark is None or sequence >= self._mark.chunk_sequence or self._home.copied:
            return None
        position, ordinal = chunk.hint()
        survey = chunk.survey(position=position, ordinal=ordinal, trusted=chunk.size)
        behind = survey.gap_index or chunk.base + survey.stopped_ordinal
        known = survey.code == _native.ROLL and ((sequence + 1, behind) in self._there or survey.adoption)
        return survey if known else None


def opened(
    home: Directory, folder: str, file: str, sequence: int, base: int, *, writable: bool = False
) -> _native.DetachedChunk:
    """
    One chunk file of a queue, in whatever folder.

    Raises:
        FileNotFoundError: there is none, or it was retired meanwhile.
        Corrupt, BadFormat, Unsafe: it is no chunk of this queue.
    """
    above = contextlib.nullcontext(home.chunks) if folder == CHUNKS else home.below_path(folder)
    with above as directory:
        fd, size = home.open(directory, file, writable=writable)
        with fd:
            spares.hold_as_mapper(fd, file, directory)
            return _native.DetachedChunk(
                fd,
                size,
                base=base,
                sequence=sequence,
                queue_id=home.queue_id,
                path=f"{home.path}/{folder}/{file}",
                checksum=home.options.checksum,
                writable=writable,
            )


class _Walked(NamedTuple):
    pieces: list[Piece]
    sets: dict[int, _Adopted]
    refused: list[str]


def _walk(home: Directory, looker: _Looker) -> _Walked:
    """The chain from its first live chunk on; a half-adopted set is not part of it."""
    sequence, base = home.journal.first_live, home.journal.first_index
    pieces: list[Piece] = []
    sets: dict[int, _Adopted] = {}
    place = _Adopted(sequence, base)
    adoption = begun = 0  # the set that the last SEAL names, and where in pieces it begins: below 0 if that is retired
    while True:
        piece = looker.look(sequence, base, adoption, len(pieces) - begun)
        if piece is None:
            break
        survey = piece.survey
        pieces.append(piece)
        if survey.code != _native.ROLL:
            looker.reason = _why(survey)
            break
        sequence, base = piece.sequence + 1, survey.gap_index or piece.base + survey.stopped_ordinal
        if survey.adoption != adoption:
            if adoption:
                sets[adoption] = place
            adoption, counts = survey.adoption, looker.counts_up_to(piece, survey.adoption)
            begun = len(pieces) - len(counts)
            place = _Adopted(sequence - len(counts), base - sum(counts))
    if adoption and len(pieces) > max(begun, 0) and looker.is_over(adoption, pieces[-1]):
        adoption = 0  # though its last SEAL is not there: a recovery was writing it
    elif adoption and _is_whole(looker.manifests.get(adoption), pieces, begun):
        sets[adoption] = place
        adoption = 0
    if not adoption:
        return _Walked(pieces, sets, [])
    looker.reason = f"adoption {adoption:010x} is not whole: {looker.reason}"
    return _Walked(pieces[:begun] if begun >= 0 else pieces, sets, [f"{adoption:010x}"])


def _is_whole(manifest: records.Manifest | None, pieces: list[Piece], begun: int) -> bool:
    """Whether its last chunk is all there, though that one's SEAL is not: a recovery was writing it."""
    if manifest is None or not manifest.counts or len(pieces) - begun != len(manifest.counts):
        return False
    return pieces[-1].survey.ordinal == manifest.counts[-1]


def _why(survey: _native.Survey) -> str:
    if survey.code == _native.WAITING:
        return "a claim that was never committed"
    return survey.reason or "the end of what was put"


def make_plan(home: Directory) -> Plan:
    """
    What is whole in the queue. Changes nothing.

    Raises:
        Corrupt: something below the watermark is not; it says where.
    """
    mark = watermark.read(home)
    looker = _Looker(home, mark)
    pieces, sets, refused = _walk(home, looker)
    there = home.chunk_names()
    first_live = home.journal.first_live
    kept = {(piece.sequence, piece.base) for piece in pieces if piece.folder == CHUNKS}
    behind = [name for name in there if name[0] >= first_live and name not in kept]
    last = pieces[-1] if pieces else None
    end = last.base + last.survey.ordinal if last else home.journal.first_index
    _check_against_mark(home, last, end, mark, looker.reason)
    return Plan(
        pieces=pieces,
        end=end,
        next_index=_next_index(home, last, end, behind),
        reason=looker.reason,
        behind=behind,
        below=[name for name in there if name[0] < first_live],
        sets=sets,
        refused=refused,
        mark=mark,
        ledger=_ledger(home, needed=bool(sets)),
    )


def _ledger(home: Directory, *, needed: bool) -> dict[bytes, records.Adopted] | None:
    try:
        return ledger.ledger(home)
    except errors.Corrupt:
        if needed:
            raise
        return None  # whoever adopts next is told


def _check_against_mark(
    home: Directory, last: Piece | None, end: int, mark: _native.Watermark | None, reason: str
) -> None:
    if mark is None or end >= mark.next_index:
        return
    place = f"{home.path}/{CHUNKS}"
    if last is not None:
        place = f"{home.path}/{last.path}, position {last.survey.stopped}"
    raise errors.Corrupt(
        f"cannot recover {home.path}: {place}: {reason}; up to index {mark.next_index} the disk had agreed to "
        f"everything, and only what comes before {end} is whole. Nothing was changed; "
        "`shmq repair` writes a clean copy beside it"
    )


def _most(base: int, size: int) -> int:
    """One more than the largest index that a chunk can have given."""
    return base + size // _native.RECORD_BYTES_MIN


def _next_index(home: Directory, last: Piece | None, end: int, behind: list[tuple[int, int]]) -> int:
    """An index that was never given: beyond the ceiling, and beyond all that any chunk there can have given."""
    tops = [end, home.journal.ceiling, home.journal.first_index]
    if last is not None:
        tops += [_most(last.base, last.size), last.survey.gap_index]
    for sequence, base in behind:
        name = chunk_name(base, sequence)
        with contextlib.suppress(FileNotFoundError, errors.ShmqError), opened(home, CHUNKS, name, sequence, base) as it:
            tops.append(_most(base, it.size))
    if max(tops) > INDEX_MAX:
        raise errors.Corrupt(f"cannot recover {home.path}: an index of {max(tops)} is beyond all that can be given")
    return max(tops)


class Stretch(NamedTuple):
    """A part of a chunk between two damaged places, whole."""

    position: int
    ordinal: int
    survey: _native.Survey
    damage: _native.Damage | None
    """What ends it, if something whole is behind that."""

    def padded(self) -> int:
        """Ordinals of padding in it."""
        doubted = self.damage is not None and self.damage.ordinal < self.survey.stopped_ordinal
        return self.survey.padded + (0 if doubted else self.survey.doubted)


def stretches(chunk: _native.DetachedChunk, position: int = 0, ordinal: int = 0) -> Iterator[Stretch]:
    """The chunk from a place in it to its end, as far as it can be walked; each but the last ends at damage."""
    position = position or chunk.first_position()
    while True:
        survey = chunk.survey(position=position, ordinal=ordinal, pass_claims=True, singly=True, trusted=chunk.size)
        damage = chunk.resync(survey) if survey.code == _native.CORRUPT else None
        yield Stretch(position, ordinal, survey, damage)
        if damage is None:
            return
        position, ordinal = damage.end, damage.end_ordinal


def _whole_behind(chunk: _native.DetachedChunk, position: int = 0, ordinal: int = 0) -> int:
    """How many whole messages there are from that place on."""
    return sum(stretch.survey.messages for stretch in stretches(chunk, position, ordinal))


# ---------------------------------------------------------------- for whoever may only read
def view(home: Directory) -> View:
    """
    What may be read of an unclean queue. Changes nothing.

    Raises:
        Corrupt: something below the watermark is not whole.
    """
    return View(make_plan(home).pieces)


# ---------------------------------------------------------------- doing
def recover(home: Directory) -> Recovery | None:
    """
    Recover the queue, unless somebody has just done so: then None.

    Raises:
        Corrupt: something below the watermark is not whole. Nothing was changed.
        Busy: somebody administers it for long, or has it open in another boot.
    """
    with _administering(home):
        home.read_journal()
        home.look_at_boot()
        if not home.unclean():
            return None
        if somebody_is_there(home):
            if home.same_boot:  # the same file under another device number: no copy after all
                home.copied = False
                return None
            raise errors.Busy(f"cannot recover {home.path}: somebody has it open who believes in another boot")
        return _carry_out(home, make_plan(home))


def somebody_is_there(home: Directory) -> bool:
    """Whether any seat's lock is held."""
    try:
        fd, _ = home.open(home.fd, CONTROL, writable=False)
    except FileNotFoundError:
        return False
    with fd:
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, _LOCK_BASE, _SEATS, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)


def _carry_out(home: Directory, plan: Plan) -> Recovery:
    aside = _Aside(home)
    over, swept = _settle_staging(home, plan, aside)
    cut = _settle_chunks(home, plan, aside)
    _remove_sets(home, over)  # not before their chunks are on the disk as they are to be
    moved = _settle_consumers(home, plan, aside)
    aside.sync()
    _renew_control(home, plan)
    before = home.journal
    _commit(home, plan)
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


class _Aside:
    """The folder for what is no part of the queue any more, made when it is needed."""

    def __init__(self, home: Directory) -> None:
        self._home = home
        self.names: list[str] = []
        self.messages = 0

    def _name(self, name: str) -> str:
        files.make_directory(f"{self._home.path}/{ASIDE}", self._home.fd)
        return f"{self._home.journal.epoch:08x}-{name}"

    def keep(self, name: str, messages: int) -> None:
        """
        Have a copy of a chunk there, on the disk, before it is cut; unless one killed before us has made it.

        Raises:
            DiskFull: there is no room for it. Nothing was cut.
        """
        kept = self._name(name)
        self.messages += messages
        self.names.append(f"{CHUNKS}/{name}")
        folder = self._home.below(ASIDE)
        with folder:
            if kept not in files.names_in(folder):
                self._copy(name, folder, kept)
        self.sync()

    def _copy(self, name: str, folder: int, kept: str) -> None:
        home, where = self._home, f"{self._home.path}/{ASIDE}"
        source, size = home.open(home.chunks, name, writable=False)
        fd = files.new_file(folder, size, home.options.mode & 0o600, where)
        with source, fd:
            files.transfer(source, fd, size, whole=False)  # no block is shared: the cut needs no new ones
            sync.data(fd, "aside")
            files.link_file(fd, folder, kept, where)

    def take(self, folder: str, name: str) -> None:
        """Move a file or folder there."""
        target = f"{ASIDE}/{self._name(name)}"
        number = 0
        with contextlib.suppress(FileNotFoundError):
            while not _native.rename_new(self._home.fd, f"{folder}/{name}", f"{target}{f'-{number}' * bool(number)}"):
                number += 1
        self.names.append(f"{folder}/{name}")

    def sync(self) -> None:
        """Have its names on the disk."""
        if self.names:
            fd = self._home.below(ASIDE)
            with fd:
                sync.directory(fd, "aside")
            sync.directory(self._home.fd, "home")


def set_aside(home: Directory) -> dict[int, tuple[str, ...]]:
    """The names of what lies in aside/, by the epoch that was there before that recovery."""
    found: dict[int, tuple[str, ...]] = {}
    with contextlib.suppress(errors.NotFound), home.below(ASIDE) as folder:
        for name in sorted(files.names_in(folder)):
            epoch, dash, rest = name.partition("-")
            if dash and re.fullmatch("[0-9a-f]{8}", epoch):
                found[int(epoch, 16)] = (*found.get(int(epoch, 16), ()), rest)
    return found


# ---- staging
def _settle_staging(home: Directory, plan: Plan, aside: _Aside) -> tuple[set[str], int]:
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
    home: Directory, found: staging.Set, place: _Adopted, batches: dict[bytes, records.Adopted]
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
def _settle_chunks(home: Directory, plan: Plan, aside: _Aside) -> int:
    """Put every kept chunk in order, end the last one, and move away what lies behind: how many bytes were cut."""
    cut = 0
    progress = _Progress(home, len(plan.pieces) + len(plan.behind), "settling")
    for piece in plan.pieces:
        last = piece is plan.pieces[-1]
        progress.step()
        with opened(
            home, CHUNKS, chunk_name(piece.base, piece.sequence), piece.sequence, piece.base, writable=True
        ) as chunk:
            survey = piece.survey
            if last:
                behind = _whole_behind(chunk, end_of(survey), survey.ordinal)
                if behind:
                    aside.keep(chunk_name(piece.base, piece.sequence), behind)
                cut = chunk.cut(end_of(survey), plan.next_index)
                chunk.set_in_order(end_of(survey), survey.ordinal)
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


def _sync(home: Directory, name: str) -> None:
    fd, _ = home.open(home.chunks, name, writable=False)
    with fd:
        sync.data(fd, "chunk")


def _take_away(home: Directory, sequence: int, base: int, aside: _Aside) -> None:
    """A chunk behind the cut: kept aside if anything was put there."""
    name = chunk_name(base, sequence)
    try:
        with opened(home, CHUNKS, name, sequence, base) as chunk:
            survey = chunk.survey()
            empty = survey.stopped == chunk.first_position() and survey.code in (_native.EMPTY, _native.ROLL)
            aside.messages += _whole_behind(chunk)
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


# ---- consumers
_FIXED = 128
_CRC_AT, _KIND_AT, _EXPLICIT_AT, _START_AT = 60, 32, 36, 48
_HEAD_AT, _HANDED_AT, _HOLDER_AT, _CURSOR_AT = 192, 200, 208, 256
_ACKS_AT, _ACKS_END = 448, 472  # what was asked, answered and synced in another boot
_U64 = struct.Struct("<Q")
_EXCLUSIVE = 1


def _number(page: bytes, at: int) -> int:
    return int(_U64.unpack_from(page, at)[0])


def _number32(page: bytes, at: int) -> int:
    return int.from_bytes(page[at : at + 4], "little")


def checkpoint_is_whole(page: bytes, queue_id: bytes, name: str) -> bool:
    """Whether the part of a checkpoint that never changes is as it was made."""
    if len(page) < _native.CHECKPOINT_BYTES or page[:8] != b"shmqckpt" or page[16:32] != queue_id:
        return False
    length = int.from_bytes(page[56:60], "little")
    crc = _native.crc32c(page[:_CRC_AT] + bytes(4) + page[_CRC_AT + 4 : _FIXED])
    return crc == int.from_bytes(page[_CRC_AT : _CRC_AT + 4], "little") and page[64 : 64 + length] == name.encode()


def _snapshot_head(page: bytes) -> int | None:
    """The head in the newest valid snapshot."""
    newest = _native.newest_snapshot(page)
    return None if newest is None else newest.head


def _acks_are_synced(home: Directory) -> bool:
    return bool(home.options.durability.kind != "process")


def _true_head(home: Directory, page: bytes, end: int) -> int:
    """
    Where a name stands after a power cut: an acknowledgement may be forgotten, and none is invented.

    What was synced is the newest snapshot. With durability PROCESS, where little is synced, the live head is used
    when it can be true: it did reach the disk.
    """
    synced = _snapshot_head(page)
    head, handed = _number(page, _HEAD_AT), _number(page, _HANDED_AT)
    exclusive = _number32(page, _KIND_AT) == _EXCLUSIVE
    if exclusive and not _acks_are_synced(home) and (synced or 0) <= head <= handed:
        return min(head, end)
    return min(_number(page, _START_AT) if synced is None else synced, end)


def _settle_consumers(home: Directory, plan: Plan, aside: _Aside) -> dict[str, tuple[int, int]]:
    """Move back what is ahead: {name: (head before, head now)}."""
    moved = {}
    for name in home.consumer_names():
        file = f"{name}.checkpoint"
        try:
            fd, _ = home.open(home.consumers, file, writable=True)
        except (FileNotFoundError, errors.Unsafe):
            continue
        with fd:
            page = os.pread(fd, _native.CHECKPOINT_BYTES, 0)
            if not checkpoint_is_whole(page, home.queue_id, name):
                if not any(page[:_FIXED]):  # made, and its content never reached the disk
                    aside.take(CONSUMERS, file)
                continue  # damage: whoever opens the name is told
            head = _true_head(home, page, plan.end) if plan.pieces else plan.next_index
            if not plan.pieces and _snapshot_head(page) != head:  # else the next recovery takes the leap for a loss
                ring.begin_at(fd, page, home.journal.epoch, head)
            new = bytearray(page)
            _U64.pack_into(new, _HEAD_AT, head)
            # With ack="auto" nobody holds what is behind the head: it was acknowledged, and that was forgotten.
            held = max(head, min(_number(page, _HANDED_AT), plan.end)) if _number32(page, _EXPLICIT_AT) else head
            _U64.pack_into(new, _HANDED_AT, held)
            _U64.pack_into(new, _HOLDER_AT, 0)
            new[_CURSOR_AT : _CURSOR_AT + 32] = bytes(32)
            new[_ACKS_AT:_ACKS_END] = bytes(_ACKS_END - _ACKS_AT)
            if new != page:
                sync.write(fd, bytes(new[_HEAD_AT:_ACKS_END]), _HEAD_AT, "checkpoint")
                sync.data(fd, "checkpoint")
            if _number(page, _HEAD_AT) != head:
                moved[name] = (_number(page, _HEAD_AT), head)
        _renew_ring(home, name, 0 if plan.pieces else plan.next_index)
    sync.directory(home.consumers, "consumers")
    return moved


def _renew_ring(home: Directory, name: str, first: int) -> None:
    """
    A group's ring is the truth of one boot only: what its snapshot does not call done is delivered again.

    In a copied directory too, where it names owners that nobody here is. Nothing is there before *first*.
    """
    path = f"{home.path}/{CONSUMERS}/{name}"
    try:
        fd, _ = home.open(home.consumers, f"{name}.ring", writable=True)
    except (FileNotFoundError, errors.Unsafe):
        return
    with fd, contextlib.suppress(errors.Corrupt, errors.BadFormat):  # damage: whoever opens the name is told
        checkpoint = home.checkpoint(name, writable=True)
        with contextlib.closing(ring.map_ring(home, name, writable=True)) as memory:
            _native.Ring.rebuild(memory, checkpoint, boots.boot_id(), f"{path}.ring", first)
        sync.data(fd, "ring")


# ---- the end
_FIRST_LIVE_AT, _NEWEST_AT, _DURABLE_AT, _DURABLE_CHUNK_AT, _PADDED_AT = 256, 320, 400, 408, 448
_PADS_DOUBTED_AT = 472


def _renew_control(home: Directory, plan: Plan) -> None:
    """Nobody is here; the last chunk is known; and so is how many indexes have no message."""
    journal = home.journal
    finished = bool(journal.flags & _native.JOURNAL_FINISHED)
    page = bytearray(_native.format_control(home.queue_id, finished=finished))
    _U64.pack_into(page, _FIRST_LIVE_AT, journal.first_live)
    if plan.pieces:
        _U64.pack_into(page, _NEWEST_AT, plan.pieces[-1].sequence + 1)
        first = plan.pieces[0].base
        kept = sum(_kept(piece) for piece in plan.pieces)
        _U64.pack_into(page, _PADDED_AT, plan.next_index - first - kept)
        if not all(piece.looked for piece in plan.pieces):
            _U64.pack_into(page, _PADS_DOUBTED_AT, 1)  # whoever asks counts
    if plan.mark is not None:
        _U64.pack_into(page, _DURABLE_AT, plan.mark.next_index)
        _U64.pack_into(page, _DURABLE_CHUNK_AT, max(plan.mark.chunk_sequence, journal.first_live) + 1)
    with contextlib.suppress(FileNotFoundError):
        fd, size = home.open(home.fd, CONTROL, writable=True)
        with fd:
            if size == len(page):
                if os.pread(fd, size, 0) != page:
                    sync.write(fd, bytes(page), 0, "control")
                    sync.data(fd, "control")
                return
        os.unlink(CONTROL, dir_fd=home.fd)
    files.make_file(home.fd, CONTROL, bytes(page), home.options.mode & 0o600, home.path, "control")
    sync.directory(home.fd, "home")


def _commit(home: Directory, plan: Plan) -> None:
    journal = home.journal
    control = os.stat(CONTROL, dir_fd=home.fd, follow_symlinks=False)
    home.write_journal(
        journal._replace(
            epoch=journal.epoch + 1,
            boot_id=boots.boot_id(),
            ceiling=max(journal.ceiling, plan.next_index),
            first_index=journal.first_index if plan.pieces else plan.next_index,
            device=control.st_dev,
            inode=control.st_ino,
            flags=journal.flags & _native.JOURNAL_FINISHED,  # what was put before that was on the disk
        )
    )
    home.look_at_boot()

"""
What is whole in an unclean queue, and what is to be done about the rest: decided from what is on the disk.

Nothing is changed here: whoever may only read a queue that nobody has recovered yet reads by the same plan.
"""

from __future__ import annotations

import contextlib
import dataclasses

from shmq import _native, errors
from shmq._native import layout
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import ledger, records, staging, watermark
from shmq.storage.paths import CHUNKS, chunk_name
from shmq.storage.recover.progress import Progress
from shmq.storage.stretches import opened, whole_behind
from shmq.storage.view import Piece, View, end_of

if TYPE_CHECKING:
    from shmq.storage.directory import Directory

INDEX_MAX = 1 << 62


class WholeSet(NamedTuple):
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
    sets: dict[int, WholeSet]
    refused: list[str]
    """Staged sets that a SEAL named, and that were not whole."""
    mark: _native.Watermark | None
    ledger: dict[bytes, records.Adopted] | None
    """None when it cannot be read, and nothing has to be entered."""
    follows: bool = False
    """Whether the queue follows another one: it is cut where it is whole, and goes on there with the same history."""


class End(NamedTuple):
    """Where a queue is to end, though more may be there."""

    sequence: int
    position: int
    next_index: int
    messages: int
    """In that chunk, before it."""


# ---------------------------------------------------------------- looking
class _Looker:
    """Walks the chain once."""

    def __init__(self, home: Directory, mark: _native.Watermark | None) -> None:
        self._home = home
        self._mark = mark
        self._there = set(home.chunk_names())
        self._progress = Progress(home, len(self._there))
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
            ends = chunk.state(last.survey.stopped) in (layout.WORD_FREE, layout.WORD_META, layout.WORD_SEAL)
            return ends and not whole_behind(chunk, end_of(last.survey), last.survey.ordinal)

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


class _Walked(NamedTuple):
    pieces: list[Piece]
    sets: dict[int, WholeSet]
    refused: list[str]


def _walk(home: Directory, looker: _Looker) -> _Walked:
    """The chain from its first live chunk on; a half-adopted set is not part of it."""
    sequence, base = home.journal.first_live, home.journal.first_index
    pieces: list[Piece] = []
    sets: dict[int, WholeSet] = {}
    place = WholeSet(sequence, base)
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
            place = WholeSet(sequence - len(counts), base - sum(counts))
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


def make_plan(home: Directory, *, promoted: bool = False) -> Plan:
    """
    What is whole in the queue. Changes nothing.

    *promoted*: if it follows another one, it is not to do so any more.

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
    follows = bool(home.journal.flags & _native.JOURNAL_FOLLOWER) and not promoted
    return Plan(
        pieces=pieces,
        end=end,
        next_index=end if follows else _next_index(home, last, end, behind),
        reason=looker.reason,
        behind=behind,
        below=[name for name in there if name[0] < first_live],
        sets=sets,
        refused=refused,
        mark=mark,
        ledger=_ledger(home, needed=bool(sets)),
        follows=follows,
    )


def cut_at(plan: Plan, end: End) -> Plan:
    """
    The same, of a queue that is to end there.

    Raises:
        Corrupt: it is not whole up to there.
    """
    kept = [piece for piece in plan.pieces if piece.sequence <= end.sequence]
    last = kept[-1] if kept else None
    if last is None or last.sequence != end.sequence or end.position > last.survey.stopped:
        raise errors.Corrupt(f"cannot cut at index {end.next_index}: it is not whole up to there ({plan.reason})")
    ordinal = end.next_index - last.base
    ends = last.survey._replace(
        position=end.position,
        ordinal=ordinal,
        stopped=end.position,
        stopped_ordinal=ordinal,
        messages=end.messages,
        gap_position=0,
        gap_index=0,
        adoption=0,
        code=_native.EMPTY,
    )
    gone = [piece for piece in plan.pieces if piece.sequence > end.sequence]
    return dataclasses.replace(
        plan,
        pieces=[*kept[:-1], last._replace(survey=ends)],
        end=end.next_index,
        next_index=end.next_index,
        reason="the end of what is in the queue that it follows",
        behind=[*plan.behind, *((piece.sequence, piece.base) for piece in gone if piece.folder == CHUNKS)],
        sets={adoption: place for adoption, place in plan.sets.items() if place.first <= end.sequence},
        refused=[*plan.refused, *(f"{adoption:010x}" for adoption, at in plan.sets.items() if at.first > end.sequence)],
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


# ---------------------------------------------------------------- for whoever may only read
def view(home: Directory) -> View:
    """
    What may be read of an unclean queue. Changes nothing.

    Raises:
        Corrupt: something below the watermark is not whole.
    """
    return View(make_plan(home).pieces)

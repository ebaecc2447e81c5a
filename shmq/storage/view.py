"""A queue that nobody has recovered yet, as far as it is whole: for whoever recovers it, or may only read."""

from __future__ import annotations

from shmq.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmq import _native


class Piece(NamedTuple):
    """One chunk of the chain, as far as it is whole."""

    sequence: int
    base: int
    folder: str
    """chunks, or that of the staged set where it still lies."""
    file: str
    size: int
    survey: _native.Survey
    chunk_id: int
    looked: bool
    """Whether all of it was looked at; else it lies below the watermark, and only its end was."""

    @property
    def path(self) -> str:
        """Relative to the queue."""
        return f"{self.folder}/{self.file}"


def end_of(survey: _native.Survey) -> int:
    """Where the last chunk is cut. One that was cut before is cut at the same place."""
    return survey.gap_position or survey.position


class View:
    """What is whole in a queue that nobody has recovered yet, for whoever may change nothing."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = {piece.sequence: piece for piece in pieces}
        self._last = pieces[-1].sequence if pieces else -1

    def names(self) -> list[tuple[int, int]]:
        """(sequence, base) of its chunks."""
        return [(piece.sequence, piece.base) for piece in self.pieces.values()]

    def ends(self, sequence: int) -> tuple[int, int, bool]:
        """(position, ordinal) of the end of that chunk, and whether something else must not be seen there."""
        survey = self.pieces[sequence].survey
        if sequence == self._last:
            return end_of(survey), survey.ordinal, True
        return survey.gap_position or survey.stopped, survey.stopped_ordinal, False

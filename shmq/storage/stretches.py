"""A chunk file that no member holds, in whatever folder: from one damaged place to the next, whole."""

from __future__ import annotations

import contextlib

from shmq import _native
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import spares
from shmq.storage.paths import CHUNKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.directory import Directory


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


def whole_behind(chunk: _native.DetachedChunk, position: int = 0, ordinal: int = 0) -> int:
    """How many whole messages there are from that place on."""
    return sum(stretch.survey.messages for stretch in stretches(chunk, position, ordinal))

"""A chunk file that no member holds: to see what is whole in it, and to put it in order."""

from __future__ import annotations

from shmq import errors
from shmq._core import ffi, lib
from shmq._native.chunk import CHUNK_ID_AT
from shmq._native.core import CHUNK_BYTES_MAX, PAGE_BYTES, error, inside
from shmq._native.mapping import map_file
from shmq._native.survey import Damage, Survey, damage_of, survey_of
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap
    from typing import Self


class DetachedChunk:
    """
    A mapped chunk file without a member: to see what is whole in it and, alone with it, to put it in order.

    A context manager. It unmaps at once, so nothing may be kept that points into it.
    """

    def __init__(
        self,
        fd: int,
        size: int,
        *,
        base: int,
        sequence: int,
        queue_id: bytes,
        path: str,
        checksum: bool,
        writable: bool = False,
        memory: mmap.mmap | None = None,
    ) -> None:
        """
        Map and check it, unless *memory* is what it is to be read by; *fd* stays the caller's.

        Raises:
            Corrupt, BadFormat: it is no chunk of this queue, or not the one of that name.
        """
        self.path = path
        self.base = base
        self.size = size
        if not PAGE_BYTES <= size <= CHUNK_BYTES_MAX:
            raise errors.Corrupt(f"cannot open {path}: it has {size} bytes, and no chunk has so few or so many")
        self._map = map_file(fd, size, writable=writable) if memory is None else memory
        self._memory = ffi.from_buffer(self._map)
        code = ffi.new("int *")
        self._handle = lib.shmq_chunk_new(
            self._memory, size, False, writable, checksum, base, sequence, queue_id, ffi.NULL, code
        )
        if self._handle == ffi.NULL:
            problem = error(inside(code[0]), f"cannot open {path}")
            self.close()
            raise problem

    def __enter__(self) -> Self:
        """Return this object, which the `with` block closes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap."""
        self.close()

    def close(self) -> None:
        """Unmap. Closing twice is fine."""
        if self._handle != ffi.NULL:
            lib.shmq_chunk_free(self._handle)
        self._handle = ffi.NULL
        ffi.release(self._memory)
        self._map.close()

    def chunk_id(self) -> int:
        """The random id that it was made with."""
        return int.from_bytes(self._map[CHUNK_ID_AT : CHUNK_ID_AT + 8], "little")

    def content(self, begin: int, end: int) -> bytes:
        """Its bytes from one position to before another."""
        return bytes(self._map[begin:end])

    def first_position(self) -> int:
        """Where the first message may begin."""
        return int(lib.shmq_chunk_first_position(self._handle))

    def survey(
        self,
        *,
        trusted: int = 0,
        position: int = 0,
        ordinal: int = 0,
        pass_claims: bool = False,
        singly: bool = False,
    ) -> Survey:
        """
        How far it is whole, from that place on.

        *singly*: of a committed batch, each message counts by itself; else all of them or none.
        """
        return survey_of(self._handle, trusted, position, ordinal, pass_claims=pass_claims, singly=singly)

    def indexed(self, ordinals: int) -> bool:
        """Whether its index has every entry up to so many ordinals."""
        return bool(lib.shmq_indexed(self._handle, ordinals))

    def hint(self) -> tuple[int, int]:
        """Position and ordinal of the end of some region that was claimed, as the chunk itself notes it."""
        at, of = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.shmq_hint(self._handle, at, of)
        return int(at[0]), int(of[0])

    def resync(self, survey: Survey) -> Damage | None:
        """What is damaged where that survey stopped, one that was made singly; None when nothing whole is behind it."""
        return damage_of(
            ffi.new("shmq_damage *", (survey.stopped, survey.stopped_ordinal)),
            lambda damage: lib.shmq_resync(self._handle, survey.position, survey.ordinal, damage),
        )

    def cut(self, position: int, next_index: int) -> int:
        """
        End it there, for ever; the next chunk begins at *next_index*. How many bytes that were not zero are gone.

        Raises:
            Corrupt: there is no room to end it; nothing was written.
        """
        gone = lib.shmq_cut(self._handle, position, next_index)
        if gone < 0:
            raise error(int(gone), f"cannot recover {self.path}")
        return int(gone)

    def pad_over(self, position: int, end: int, count: int) -> bool:
        """Make padding of what lies between two places; False when no words can say so."""
        return bool(lib.shmq_pad_over(self._handle, position, end, count) == lib.SHMQ_OK)

    def pad_behind(self, position: int, count: int) -> int | None:
        """Make padding of *count* ordinals from there on, over whatever is there: its end; None if there is no room."""
        end = int(lib.shmq_pad_behind(self._handle, position, count))
        return end if end >= 0 else None

    def state(self, position: int) -> int:
        """The state of the word there."""
        return self._map[position + 7] >> 5

    def pad_claim(self, position: int) -> None:
        """Make padding of a claim that nobody will commit."""
        word = int.from_bytes(self._map[position : position + 8], "little")
        self._map[position : position + 8] = (word & ~(7 << 61) | 4 << 61).to_bytes(8, "little")

    def zero_from(self, position: int) -> None:
        """Zeros from there on."""
        lib.shmq_zero_from(self._handle, position)

    def set_in_order(self, position: int, ordinal: int) -> None:
        """Make hints and index anew from its words up to there."""
        lib.shmq_set_in_order(self._handle, position, ordinal)

"""Where a reserved payload is filled before it is committed."""

from __future__ import annotations

import contextlib
import functools
import os
import weakref

from shmq._core import ffi, lib
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from shmq._native.chunk import Chunk, Claim

COPIED_BELOW = 8 << 20
"""Bytes of a slot from which on a second mapping of its pages costs less than a copy."""


class Room:
    """
    Where a claim's payload is filled: memory of its own, or from `COPIED_BELOW` on its pages, through a second mapping.

    Attributes:
        view: the bytes.
    """

    def __init__(self, size: int) -> None:
        """Of *size* bytes: all zeros if they are its own."""
        self.size = size
        self.view = memoryview(bytearray(size if size < COPIED_BELOW else 0))
        self._again: Any = None

    def stands(self, chunk: Chunk, claim: Claim) -> None:
        """That is the claim."""
        if self.size < COPIED_BELOW:
            return
        at = lib.shmq_map_again(chunk.memory + claim.payload, self.size)
        if at == ffi.NULL:
            raise OSError(f"cannot map {self.size} bytes of {chunk.path} once more")
        keeping = functools.partial(_unmap_again, self.size, chunk.map)  # the file stays mapped, and locked, as long
        buffer = ffi.buffer(ffi.gc(at, keeping), self.size)
        self.view, self._again = memoryview(buffer), (at, weakref.ref(buffer))

    def commit(self, chunk: Chunk, claim: Claim, length: int) -> int:
        """Publish the claim with the first *length* bytes; nothing that is stored here later changes them."""
        if self._again is None:
            with self.view[:length] as view, ffi.from_buffer("char[]", view) as data:
                lib.shmq_fill(chunk.handle, claim.payload, data, length)
        else:
            self.shut()
        return chunk.commit(claim, length)

    def shut(self) -> None:
        """What is stored here from now on goes nowhere: arrays that still look into it keep what they have."""
        with contextlib.suppress(BufferError):
            self.view.release()
        if self._again is not None:
            at, looked_at = self._again
            kept = looked_at()
            answer = 0 if kept is None else lib.shmq_make_private(at, self.size)
            if answer < 0:
                raise OSError(-answer, os.strerror(-answer))
            self._again = at, lambda: None


def _unmap_again(size: int, keep: Any, at: Any) -> None:  # noqa: ARG001
    lib.shmq_unmap_again(at, size)

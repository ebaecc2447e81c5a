"""Words of a file that belongs to another program, changed in one step while that program changes them too."""

from __future__ import annotations

from shmq._core import ffi, lib
from shmq._native.core import error
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap


class SharedWords:
    """
    The words of a shared mapping: of 4 bytes without a sign, of 8 bytes with one.

    A load acquires and a store releases, a change does both. Each place is checked: Corrupt where the word is not
    all in the mapping or at no multiple of its width. The mapping cannot be closed before this is.
    """

    __slots__ = ("_bytes", "_data")

    def __init__(self, memory: mmap.mmap) -> None:
        """Take the words of *memory*, which must be writable."""
        self._data = ffi.from_buffer("char[]", memory, require_writable=True)
        self._bytes = len(memory)

    def __len__(self) -> int:
        """How many bytes are mapped."""
        return self._bytes

    def load32(self, at: int) -> int:
        """Return the 4 bytes at *at*, and see whatever was written before they were."""
        code = lib.shmq_foreign_load32(self._data, self._bytes, at)
        if code < 0:
            raise error(code, "cannot read a word")
        return int(code)

    def cas32(self, at: int, expected: int, desired: int) -> bool:
        """Change the 4 bytes at *at* from *expected* to *desired*; False if they are something else."""
        code = lib.shmq_foreign_cas32(self._data, self._bytes, at, expected, desired)
        if code < 0:
            raise error(code, "cannot change a word")
        return bool(code)

    def load64(self, at: int) -> int:
        """Return the 8 bytes at *at*, and see whatever was written before they were."""
        found = ffi.new("int64_t *")
        code = lib.shmq_foreign_load64(self._data, self._bytes, at, found)
        if code < 0:
            raise error(code, "cannot read a word")
        return int(found[0])

    def cas64(self, at: int, expected: int, desired: int) -> bool:
        """Change the 8 bytes at *at* from *expected* to *desired*; False if they are something else."""
        code = lib.shmq_foreign_cas64(self._data, self._bytes, at, expected, desired)
        if code < 0:
            raise error(code, "cannot change a word")
        return bool(code)

    def store64(self, at: int, value: int) -> None:
        """Store the 8 bytes at *at*; whoever loads them sees whatever was written before."""
        code = lib.shmq_foreign_store64(self._data, self._bytes, at, value)
        if code < 0:
            raise error(code, "cannot write a word")

    def close(self) -> None:
        """Let go of the mapping; again is harmless."""
        if self._bytes:
            self._bytes = 0
            ffi.release(self._data)

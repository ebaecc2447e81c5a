"""How far each follower's disk agrees: what a put waits for that is to be there, too."""

from __future__ import annotations

from shmq import errors
from shmq._native import layout
from shmq._native.mapping import map_alone

_WORD = 8
_HEAD = layout.marks


class Marks:
    """The mapped file. Each mark has one writer; whoever reads may be in any process."""

    def __init__(self, fd: int, size: int, path: str, *, writable: bool) -> None:
        """
        Map it.

        Raises:
            Corrupt: it is no such file.
        """
        if size != layout.MARKS_BYTES:
            raise errors.Corrupt(f"cannot read {path}: it has {size} bytes instead of {layout.MARKS_BYTES}")
        self._map = map_alone(fd, size, writable=writable)
        self._words = memoryview(self._map).cast("Q")
        if self._map[: _HEAD.epoch] != self.format(0)[: _HEAD.epoch]:
            raise errors.Corrupt(f"cannot read {path}: it does not begin as one; remove it, and nothing is lost")

    @staticmethod
    def format(epoch: int) -> bytes:
        """A file without a mark."""
        head = layout.MARKS_MAGIC.to_bytes(8, "little") + layout.BYTE_ORDER_MARK.to_bytes(4, "little")
        head += layout.FORMAT_VERSION.to_bytes(4, "little") + epoch.to_bytes(8, "little")
        return head.ljust(layout.MARKS_BYTES, b"\0")

    @property
    def epoch(self) -> int:
        """Of the queue when they were begun; in another one they mean nothing."""
        return self._words[_HEAD.epoch // _WORD]

    def begin(self, epoch: int) -> None:
        """Forget all of them, for those of that epoch. Under the administrative lock."""
        self._words[_HEAD.epoch // _WORD] = 0
        for number in range(layout.MARKS_COUNT):
            self._words[self._at(number)] = 0
        self._words[_HEAD.epoch // _WORD] = epoch

    @staticmethod
    def _at(number: int) -> int:
        return (_HEAD.mark + number * layout.MARK_BYTES + layout.mark.index) // _WORD

    def __getitem__(self, number: int) -> int:
        """Before which index all is on the disk of that follower, as far as is known."""
        return self._words[self._at(number)]

    def __setitem__(self, number: int, index: int) -> None:
        """
        Say so, for whoever looks when the bell has rung: one aligned store, before the bell's release. Pairs with the
        acquire by which a sleeper looks at the bell.
        """
        self._words[self._at(number)] = index

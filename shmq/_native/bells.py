"""The bells that one thread sleeps on for others, who cannot sleep themselves: an event loop, a descriptor."""

from __future__ import annotations

from shmq._core import ffi, lib
from shmq._native.core import error
from shmq._native.member import ANY_MAX
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class Bells:
    """
    Up to ANY_MAX places for a bell. What is set is guarded by the caller's lock; the thread sleeps on a copy of it.

    A place without a bell has the nudge in it, which never misleads: who looks at it finds nobody there.
    """

    def __init__(self) -> None:
        """None yet."""
        self._nudge = ffi.new("uint32_t *")
        self._bells, self._copy = (ffi.new("void *[]", [self._nudge] * ANY_MAX) for _ in range(2))
        self._seen, self._seen_copy = (ffi.new("uint32_t[]", ANY_MAX) for _ in range(2))
        self._moved = ffi.new("uint32_t[]", ANY_MAX)

    def set(self, place: int, bell: Any, seen: int) -> None:
        """Have that bell there, of which *seen* was seen before the last look that found nothing."""
        self._seen[place] = seen  # in this order it is at worst one look too many
        self._bells[place] = bell

    def clear(self, place: int) -> None:
        """Have none there."""
        self._bells[place] = self._nudge
        self._seen[place] = 0

    def begin(self, count: int) -> None:
        """Before `sleep`, under the lock: copy what is set; a nudge from now on ends the sleep."""
        self._nudge[0] = 0
        ffi.memmove(self._copy, self._bells, count * ffi.sizeof("void *"))
        ffi.memmove(self._seen_copy, self._seen, count * ffi.sizeof("uint32_t"))

    def sleep(self, count: int, deadline_ns: int) -> int:
        """
        Sleep until one of them moves, a nudge, the deadline, or half a second, whichever is first.

        EMPTY where the kernel cannot. The caller keeps what the bells are in.
        """
        code = int(lib.shmq_wait_any(self._copy, self._seen_copy, count, self._nudge, deadline_ns))
        if code not in (lib.SHMQ_OK, lib.SHMQ_TIMEOUT, lib.SHMQ_SIGNAL, lib.SHMQ_EMPTY):
            raise error(code, "cannot wait")
        return code

    def moved(self, count: int) -> list[int]:
        """The places, of what is set now, whose bell has moved. Under the lock."""
        found = lib.shmq_moved(self._bells, self._seen, count, self._moved)
        return ffi.unpack(self._moved, found) if found else []

    def nudge(self) -> None:
        """End the sleep."""
        lib.shmq_nudge(self._nudge)

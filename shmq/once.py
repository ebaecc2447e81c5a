"""
Putting something once: a repeated (producer, sequence) returns where the first one is, and puts nothing.

See shmq/storage/dedup.py for what makes it true, and for who was killed in between.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.staged import check_dedup
from shmq.storage import dedup, warm

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.producer import Producer


class Turn:
    """
    One put with dedup.

    Attributes:
        field: what its records say, as the core takes it.
    """

    def __init__(self, producer: Producer, given: tuple[str | bytes, int]) -> None:
        """
        Of that handle.

        Raises:
            ValueError, TypeError: that is no (producer, sequence).
        """
        self._handle = producer
        self._name, self._sequence = check_dedup(given)
        self.field = dedup.field(self._name, self._sequence)

    def put(self, count: int, region: int, deadline_ns: int, attempt: Callable[[_native.Chunk], int]) -> range:
        """Put it with *attempt*, unless it was put before: its indexes."""
        handle = self._handle
        if handle._syncer is not None:  # noqa: SLF001
            handle._syncer.check()  # noqa: SLF001
        dedup.begin(handle._home)  # noqa: SLF001
        while True:
            done = self._try(region, deadline_ns, attempt)
            if not isinstance(done, int) or done >= 0:
                break
            # Somebody must make room, and may need this turn for it: it is waited for outside.
            handle._settle(done, handle._tail, region, count, deadline_ns)  # noqa: SLF001
        put = range(done, done + count) if isinstance(done, int) else done
        self._note()
        if handle._syncer is not None and len(put):  # noqa: SLF001
            handle._syncer.wait(None, put[-1], deadline_ns, put.start)  # noqa: SLF001  # also of one that was put before
        return put

    def _try(self, region: int, deadline_ns: int, attempt: Callable[[_native.Chunk], int]) -> int | range:
        """Alone: where it is, or was put before; FULL or SHUT_DOWN when something must be waited for."""
        handle = self._handle
        home = handle._home  # noqa: SLF001
        with dedup.alone(home, handle._membership.control, self._name, deadline_ns, "put into"):  # noqa: SLF001
            handle._check_open()  # noqa: SLF001
            put = self._known().find(self._name, self._sequence, f"put into {home.path}")
            while put is None:
                tail = handle._tail  # noqa: SLF001
                code = attempt(tail)
                if code >= 0 or code in (_native.FULL, _native.SHUT_DOWN):
                    return code
                handle._settle(code, tail, region, 1, deadline_ns)  # noqa: SLF001
                del tail  # or its mapping would not be idle
                warm.settle()
            return put

    def _known(self) -> dedup.Known:
        handle = self._handle
        if handle._known is None:  # noqa: SLF001
            handle._known = dedup.Known(handle._home, handle._chain)  # noqa: SLF001
        return handle._known  # noqa: SLF001

    def _note(self) -> None:
        """Now and then, so that the next process has not far to walk. What fails here is no error of the put."""
        handle, known = self._handle, self._handle._known  # noqa: SLF001
        before = 0 if known is None else known.worth_noting()
        if known is not None and before:
            with contextlib.suppress(errors.ShmqError, OSError), handle._home.admin(timeout=0):  # noqa: SLF001
                if dedup.note(handle._home, handle._chain, before):  # noqa: SLF001
                    known.noted(before)

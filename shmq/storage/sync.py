"""
What makes bytes durable: every fsync, fdatasync, msync and positioned write of durable state passes through here.

The functions are looked up in this module at each call, so that a suite can put its own in their place and see, fail or
forget each of them. *what* names the bytes, in the words of the table "What is synced, and in which order" in
docs/format.md. What does not pass here is the group commit of the newest chunk, and how `interval` goes over to the one
behind it: the core does them by itself (cffi_build/src/durable/sync.c); set IN_CORE to False and they pass here too.
"""

from __future__ import annotations

import errno
import os

from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

from shmq import _native

IN_CORE = True
"""Whether the core may sync the newest chunk by itself."""


def _ask(call: Callable[[int], None], fd: int) -> None:
    """As the kernel would refuse a descriptor that another thread has closed, where Python calls its -1 no number."""
    try:
        call(fd)
    except ValueError:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None


def data(fd: int, what: str) -> None:  # noqa: ARG001  # for whoever replaces it
    """Have the content of a file, and what is needed to find it, on the disk."""
    _ask(os.fdatasync, fd)


def pages(memory: mmap.mmap, first: int, size: int, what: str) -> None:  # noqa: ARG001
    """Have some pages of a mapped file, and what is needed to find them, on the disk."""
    _native.sync_pages(memory, first, size)


def start(fd: int, what: str) -> None:  # noqa: ARG001
    """Have the kernel begin to write a file that `data` is called for later, and wait for nothing."""
    _native.start_writing(fd)


def directory(fd: int, what: str) -> None:  # noqa: ARG001
    """Have the names in a directory on the disk."""
    _ask(os.fsync, fd)


def write(fd: int, content: bytes, position: int, what: str) -> None:  # noqa: ARG001
    """Write all of *content*, however little the kernel takes at once."""
    view = memoryview(content)
    while view:
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written

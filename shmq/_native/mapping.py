"""Files mapped into memory, and the few calls of the kernel that Python has no word for."""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import TYPE_CHECKING

from shmq._core import ffi, lib
from shmq._native.core import Fd, error

if TYPE_CHECKING:
    from collections.abc import Iterator


def start_writing(fd: int) -> None:
    """Have the kernel begin to write what is dirty in a file. Nothing is promised, and nothing waited for."""
    lib.shmq_start_writing(fd)


@contextlib.contextmanager
def _naming(fd: int) -> Iterator[None]:
    """Have a refusal of the kernel name the file, which costs no descriptor: it knows only ours of it."""
    try:
        yield
    except OSError as problem:
        problem.filename = os.readlink(f"/proc/self/fd/{fd}")
        raise


def map_file(fd: int, size: int, *, writable: bool) -> mmap.mmap:
    """Map a whole file, shared. The mapping keeps the open file, and its locks, until the last view of it is gone."""
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    with _naming(fd):
        return mmap.mmap(fd, size, mmap.MAP_SHARED, access)


def map_private(fd: int, size: int) -> mmap.mmap:
    """Map a whole file, read-only, so that what is written there is seen by nobody else and never reaches the file."""
    with _naming(fd):
        return mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)


def map_alone(fd: int, size: int, *, writable: bool) -> mmap.mmap:
    """
    Map a whole file, shared, without keeping a lock of *fd*.

    A mapping keeps the open file it was made from, in every forked child too, and with it whatever lock that carries.
    The locks of seats and names must end with their holder, so their files are mapped through an opening of their own.
    """
    with _naming(fd):
        again = Fd.of(os.open, f"/proc/self/fd/{fd}", (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    with again:
        return map_file(again, size, writable=writable)


def sync_pages(memory: mmap.mmap, first: int, size: int) -> None:
    """As `mmap.flush`, which would keep all other threads of the process waiting meanwhile."""
    answer = lib.shmq_sync_mapped(ffi.from_buffer(memory) + first, size)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))


def rename_new(directory: int, old: str, new: str) -> bool:
    """Rename a file within *directory*; False when the new name is taken."""
    code = lib.shmq_rename_new(directory, old.encode(), new.encode())
    if code not in (lib.SHMQ_OK, lib.SHMQ_EMPTY):
        raise error(code, "cannot give a file its name")
    return bool(code == lib.SHMQ_OK)

"""Builds shim.c, and speaks to it: in a process that was started with it in front of the C library."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
SHIM = "SHMQ_TEST_SHIM"
SHORT, AFTER = 4096, 8192
KINDS = (
    "open",
    "make",
    "tmpfile",
    "mkdir",
    "link",
    "rename",
    "unlink",
    "rmdir",
    "fallocate",
    "truncate",
    "write",
    "read",
    "fsync",
    "fdatasync",
    "map",
    "lock",
    "stat",
    "chmod",
    "msync",
)
"""In the order of shim.c."""


def why_not() -> str:
    """Why nothing of this can run here; empty when it can."""
    if shutil.which("gcc") is None:
        return "gcc is needed to build the shim"
    core = subprocess.run(
        [sys.executable, "-c", "import shmq._core as c; print(c.__file__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if b"__asan_init" in Path(core).read_bytes():
        return "the core was built with sanitizers, which want to stand before the C library themselves"
    return ""


def build(folder: str | Path) -> str:
    """The shim, compiled into *folder*."""
    made = f"{folder}/shim.so"
    command = ["gcc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", str(HERE / "shim.c")]
    done = subprocess.run([*command, "-o", made, "-ldl"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"cannot build the shim: {done.stderr}")
    return made


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A folder in memory, if there is one."""
    memory = "/dev/shm"
    folder = tempfile.mkdtemp(prefix="shmq-power-", dir=memory if os.access(memory, os.W_OK) else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(built: str) -> dict[str, str]:
    """For a process that is to have the shim in front."""
    root = str(HERE.parent.parent)
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "LD_PRELOAD": built, SHIM: built, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}


class Pages(NamedTuple):
    """What an msync names: bytes *begin* to *end* of a file."""

    inode: int
    begin: int
    end: int


class Shim:
    """The shim in this process."""

    def __init__(self) -> None:
        built = os.environ.get(SHIM)
        if not built:
            raise RuntimeError("this process was not started with the shim")
        self._library = ctypes.CDLL(built)
        self._listener: Any = None

    @contextlib.contextmanager
    def listening(self, heard: Callable[[str, int, bool, Pages | None], None]) -> Iterator[None]:
        """Have *heard*(kind, descriptor, whether it is over, pages of an msync) called around what changes files."""

        def hear(kind: int, fd: int, when: int) -> None:
            heard(KINDS[kind], fd, bool(when), self._pages() if KINDS[kind] == "msync" else None)

        self._listener = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, ctypes.c_int)(hear)
        self._library.shim_listen(self._listener)
        try:
            yield
        finally:
            self._library.shim_listen(None)

    def _pages(self) -> Pages:
        begin, end = ctypes.c_uint64(), ctypes.c_uint64()
        self._library.shim_pages(ctypes.byref(begin), ctypes.byref(end))
        for line in Path("/proc/self/maps").read_text().splitlines():
            bounds, _, offset, _, inode = line.split(maxsplit=5)[:5]
            first, last = (int(each, 16) for each in bounds.split("-"))
            if first <= begin.value < last:
                at = begin.value - first + int(offset, 16)
                return Pages(int(inode), at, at + end.value - begin.value)
        raise RuntimeError(f"nothing is mapped at {begin.value:#x}, which is synced")

    def arm(self, first: int = 0, last: int = 0, error: int = 0) -> None:
        """Count this thread's calls from 1 on, and fail those from *first* to *last* with *error*."""
        self._library.shim_arm(first, last, error)

    def disarm(self) -> list[str]:
        """The kinds of the calls since `arm`."""
        count = self._library.shim_disarm()
        return [KINDS[self._library.shim_kind(number)] for number in range(1, min(count, 65536) + 1)]

"""
The disk of disk.c with a loop device and a file system on it; what this needs, and what a machine lacks of it.

Everything is mounted in a mount namespace and started in a process namespace of our own, so that nothing is left,
by whatever the run ends: `inside` begins one.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE = 0x4C82, 0x4C0A
_AUTOCLEAR, _DIRECT_IO = 4, 16
_CONFIGURE = struct.Struct("<II 52x I 176x 64x")
"""`struct loop_config`: the descriptor, bytes in a block, and, in the middle of `struct loop_info64`, the flags."""
_DETACH = 2
_MANY = 50
"""Attempts at a loop device that somebody else may have taken meanwhile."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """
    A file system, how it is made, and how it is mounted.

    Attributes:
        size: bytes of the disk; little is written to most of it, so it takes no room.
        sector: bytes that the disk writes whole or not at all.
    """

    name: str
    program: str
    size: int
    made: tuple[str, ...]
    mounted: str
    sector: int = 512

    @property
    def type(self) -> str:
        """What the kernel calls it."""
        return self.program.partition(".")[2]


_EXT4 = ("-F", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard")
KINDS = (
    Kind("ext4 ordered", "mkfs.ext4", 64 << 20, _EXT4, "data=ordered,commit=1"),
    Kind("ext4 writeback", "mkfs.ext4", 64 << 20, _EXT4, "data=writeback,commit=1"),
    Kind("ext4 journal", "mkfs.ext4", 64 << 20, _EXT4, "data=journal,commit=1"),
    Kind("xfs", "mkfs.xfs", 300 << 20, ("-f", "-K"), ""),
    # The kernel gives up where the 4 KiB of btrfs's superblock are torn, so its disk writes these at once.
    Kind("btrfs", "mkfs.btrfs", 160 << 20, ("-f", "-K", "--sectorsize", "4096"), "commit=1", 4096),
)


# ---------------------------------------------------------------- what is needed
def why_not() -> str:
    """What keeps this machine from cutting anything; empty when nothing does."""
    if os.geteuid():
        return "root is needed, to mount"
    for program in ("gcc", "losetup", "mount", "umount", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is needed"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(device, os.R_OK | os.W_OK):
            return f"{device} is needed"
    done = subprocess.run(["unshare", *_NAMESPACES, "true"], capture_output=True, text=True, check=False, timeout=60)
    return f"unshare {' '.join(_NAMESPACES)} refuses: {done.stderr.strip()}" if done.returncode else ""


def lacking(kind: Kind) -> str:
    """Why that file system cannot be had here; empty when it can."""
    if shutil.which(kind.program) is None:
        return f"{kind.program} is needed"
    known = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    if kind.type not in known:  # it may be a module
        subprocess.run(["modprobe", kind.type], capture_output=True, check=False, timeout=60)
        known = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    return "" if kind.type in known else f"this kernel has no {kind.type}"


_NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def inside(command: Sequence[str]) -> list[str]:
    """The command, in namespaces of its own: when its first process ends, so do all others, and nothing is mounted."""
    return ["unshare", *_NAMESPACES, *command]


def build(folder: str) -> str:
    """disk.c, compiled into *folder*."""
    made = f"{folder}/disk"
    command = ["gcc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", str(HERE / "disk.c"), "-o", made]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"cannot build the disk: {done.stderr}")
    return made


# ---------------------------------------------------------------- a disk
class MountError(Exception):
    """The kernel does not mount what is on the disk."""


def make(kind: Kind, image: str) -> None:
    """Make the file system in a fresh file."""
    with open(image, "wb") as file:
        file.truncate(kind.size)
    command = [kind.program, "-q", *kind.made, image]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")


@contextlib.contextmanager
def served(program: str, base: str, log: str, place: str, overlay: str | None = None) -> Iterator[None]:
    """The disk as the file *place*, with what is in *base*, and *overlay* on top of it; it writes *log*."""
    for each in (place, log):
        Path(each).write_bytes(b"")
    words = [program, base, log, place, *([overlay] if overlay else [])]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        assert server.stdout
        try:
            if server.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the disk does not start: {server.wait()}")
            yield
        finally:
            _unmount(place)
            try:
                server.wait(20)
            finally:
                server.kill()


@contextlib.contextmanager
def mounted(kind: Kind, disk: str, folder: str) -> Iterator[None]:
    """
    The file system on that disk, mounted at *folder*.

    Raises:
        MountError: the kernel does not take it.
    """
    with _loop(disk, kind.sector) as device:
        command = ["mount", "-t", kind.type, *(["-o", kind.mounted] if kind.mounted else []), device, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise MountError(f"{' '.join(command)}: {done.stderr.strip()}")
    try:
        yield
    finally:
        _unmount(folder)


@contextlib.contextmanager
def _loop(file: str, sector: int) -> Iterator[str]:
    """A block device made of the file; it goes by itself when nobody uses it any more."""
    backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        for left in reversed(range(_MANY)):
            control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
            try:
                name = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            finally:
                os.close(control)
            device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, _CONFIGURE.pack(backing, sector, _AUTOCLEAR | _DIRECT_IO))
                break
            except OSError as problem:  # somebody was quicker
                os.close(device)
                if problem.errno != errno.EBUSY or not left:
                    raise
    finally:
        os.close(backing)
    try:
        yield name
    finally:
        os.close(device)


def _unmount(place: str) -> None:
    """As soon as nobody is in it: who was killed may still be on its way out."""
    for left in reversed(range(200)):
        done = subprocess.run(["umount", place], capture_output=True, text=True, check=False, timeout=120)
        if not done.returncode or "not mounted" in done.stderr:
            return
        time.sleep(0.01)
        if not left:
            ctypes.CDLL(None).umount2(place.encode(), _DETACH)

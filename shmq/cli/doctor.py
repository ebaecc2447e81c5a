"""
Check whether shmq can keep its promises on this machine and in this place.

Examples:
    shmq doctor
    shmq doctor /var/lib/myapp --json

Makes a small queue below PATH, uses it, and deletes it. Exit status 1 if anything that shmq needs is missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_PROBE_BYTES = 1 << 16
_SHM = "/dev/shm"  # noqa: S108  # looked at, not used
_SMALL_SHM = 1 << 30
_DEPENDENCIES = ("cffi", "msgspec")
_CRC_FLAGS = {"sse4_2", "crc32"}  # x86-64 and aarch64, as /proc/cpuinfo calls them


class Finding(NamedTuple):
    """One check: what was looked at, whether it will do, and what was found."""

    check: str
    good: bool
    found: str
    needed: bool = True


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument(
        "path", type=show.place, metavar="PATH", nargs="?", default=".", help="where queues would be (here)"
    )
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print every finding."""
    if not os.path.isdir(arguments.path):
        raise show.Problem(f"{arguments.path} is not a directory")
    findings = [*_machine(), *_place(arguments.path), *_spark()]
    sick = any(each.needed and not each.good for each in findings)
    if arguments.json:
        show.facts({"healthy": not sick, "findings": [each._asdict() for each in findings]})
    else:
        marks = {True: "ok", False: "NO"}
        rows = [(marks[each.good] if each.needed or each.good else "--", each.check, each.found) for each in findings]
        show.table(rows, left=3)
        print("\nshmq cannot work here" if sick else "\nshmq can work here")
    return int(sick)


# ---------------------------------------------------------------- the machine
def _machine() -> list[Finding]:
    cores = len(os.sched_getaffinity(0))
    import importlib.metadata  # noqa: PLC0415  # the help of a verb needs none of it

    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _DEPENDENCIES)
    return [
        Finding("Linux", good=True, found=f"{platform.release()} on {platform.machine()}"),
        Finding("Python", good=True, found=f"{platform.python_implementation()} {platform.python_version()}"),
        Finding("shmq", good=True, found=f"{shmq.__version__}, compiled core loaded"),
        Finding("libraries", good=True, found=versions),
        Finding("processors", good=cores > 1, found=f"{cores} for this process", needed=False),
        _crc(),
        _shm(),
    ]


def _crc() -> Finding:
    words = set(Path("/proc/cpuinfo").read_text().split())
    hardware = bool(words & _CRC_FLAGS)
    found = "in hardware" if hardware else "by table: checksums cost more, and are the same"
    return Finding("CRC-32C", good=hardware, found=found, needed=False)


def _shm() -> Finding:
    try:
        room = os.statvfs(_SHM)
    except OSError as problem:
        return Finding(_SHM, good=False, found=f"{show.one_line(problem)} (for volatile queues)", needed=False)
    size, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    small = "; small for volatile queues (docker: --shm-size=2g)" if size < _SMALL_SHM else ""
    return Finding(_SHM, good=not small, found=f"{size:,} bytes, {free:,} free{small}", needed=False)


def _spark() -> list[Finding]:
    """What `shmq.spark` needs, which is an extra."""
    return [
        Finding(f"Spark: {each.check}", good=each.good, found=each.found, needed=False)
        for each in shmq.spark.findings()
    ]


# ---------------------------------------------------------------- the place
def _place(path: str) -> list[Finding]:
    room = os.statvfs(path)
    findings = [
        Finding("place", good=True, found=f"{os.path.abspath(path)}, {room.f_bavail * room.f_frsize:,} bytes free")
    ]
    try:
        with tempfile.TemporaryDirectory(prefix=".shmq-doctor-", dir=path) as probe:
            findings += [
                _try("nameless files (O_TMPFILE)", lambda: _nameless(probe)),
                _try("kernel locks (OFD)", lambda: _locks(probe)),
                _try("a queue", lambda: _queue(probe)),
            ]
    except OSError as problem:
        findings.append(Finding("a directory of ours", good=False, found=show.one_line(problem)))
    return findings


def _try(check: str, probe: Callable[[], str]) -> Finding:
    try:
        return Finding(check, good=True, found=probe())
    except (OSError, shmq.ShmqError) as problem:
        return Finding(check, good=False, found=show.one_line(problem))


def _nameless(directory: str) -> str:
    with contextlib.ExitStack() as stack:
        above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, above)
        fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
        stack.callback(os.close, fd)
        os.posix_fallocate(fd, 0, _PROBE_BYTES)
        os.link(f"/proc/self/fd/{fd}", "named", dst_dir_fd=above, follow_symlinks=True)
    return "made, given space, linked into place"


def _locks(directory: str) -> str:
    """Two descriptors of one process must exclude each other: that is what OFD locks add to the old ones."""
    flock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    path = f"{directory}/locked"
    with contextlib.ExitStack() as stack:
        first, second = (os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for _ in range(2))
        stack.callback(os.close, first)
        stack.callback(os.close, second)
        fcntl.fcntl(first, fcntl.F_OFD_SETLK, flock)
        try:
            fcntl.fcntl(second, fcntl.F_OFD_SETLK, flock)
        except BlockingIOError:
            return "exclude each other, also within a process"
    raise OSError("two descriptors hold the same lock")


def _queue(directory: str) -> str:
    with shmq.open(f"{directory}/queue") as queue, queue.consumer("doctor") as consumer:
        queue.put_many([b"how are you"] * 1000)
        taken = consumer.take_many(1000, timeout=0)
    return f"put 1,000 messages and took {len(taken):,}"

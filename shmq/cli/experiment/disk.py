"""A disk that becomes full: a small tmpfs in a mount namespace, where the kernel lets us make one."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import shmq
from shmq.cli.experiment import notes

_SIZE = "4m"
_MOUNT = f'mount -t tmpfs -o size={_SIZE} tmpfs "$1" && exec "$2" -c "$3"'
_PROGRAM = "import sys; sys.path[:] = {path!r}; from shmq.cli.experiment import disk; disk.fill({directory!r})"
_SECONDS = 120
_PUTS_AGAIN = 10


@dataclasses.dataclass
class Full:
    """What happened on it."""

    tried: bool
    why: str = ""
    """Why it was not tried; or what is wrong."""
    put: int = 0
    kept: int = 0
    """How many of those were read again, each whole and in its place."""
    said: str = ""
    again: int = 0
    """How many puts worked once all was finished."""

    @property
    def wrong(self) -> bool:
        """Whether something was promised and did not happen."""
        return self.tried and bool(self.why or self.kept != self.put or not self.put or self.again != _PUTS_AGAIN)


def try_it(directory: str) -> Full:
    """Fill a disk, with *directory* as its place."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return Full(tried=False, why="there is no unshare (util-linux) here")
    apart = [unshare, "-m" if os.geteuid() == 0 else "-rm"]
    probe = subprocess.run(  # noqa: S603  # fixed words
        [*apart, "mount", "-t", "tmpfs", "tmpfs", directory], capture_output=True, text=True, check=False
    )
    if probe.returncode:
        return Full(tried=False, why=f"no file system can be mounted here: {probe.stderr.strip()}")
    program = _PROGRAM.format(path=sys.path, directory=directory)
    try:
        done = subprocess.run(  # noqa: S603  # the same
            [*apart, "sh", "-c", _MOUNT, "sh", directory, sys.executable, program],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Full(tried=True, why=f"it did not end within {_SECONDS} s")
    if done.returncode:
        return Full(tried=True, why=f"it ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return Full(**json.loads(done.stdout))


def fill(directory: str) -> None:
    """Put until the disk is full, take everything, and put again; print what happened as JSON."""
    found = Full(tried=True)
    with shmq.open(f"{directory}/queue", chunk_bytes=256 << 10) as queue, queue.consumer("reader") as reader:
        try:
            while True:
                queue.put(notes.payload(1, found.put))
                found.put += 1
        except shmq.DiskFull as problem:
            found.said = str(problem).replace(f"{os.path.abspath(directory)}/", "")
        for number in range(found.put):
            found.kept += notes.told(reader.take(timeout=0)) == (1, number, 1)
        try:
            for number in range(_PUTS_AGAIN):
                queue.put(notes.payload(2, number))
                found.again += 1
        except shmq.DiskFull as problem:
            found.why = f"once all was finished, a put raised {problem}"
    print(json.dumps(dataclasses.asdict(found)))

"""
The map of a root, `shards.shmq`: which shards there are, and what their consumers were made with.

    {"version": 1, "generation": 4, "prefix": "", "bits": [[3, "finished"], [4, "open"]],
     "consumers": {"billing": {"ack": "explicit"}}}
    <BLAKE2b of that line, 16 bytes in hex>

It is replaced by rename under the root's lock, so whoever reads it reads one or the other. Of each number of bits there
is a state: `opening` (its queues are being made, and nobody puts there), `open`, `finished` (nothing more comes, and
what is there is drained before the next ones are begun), `gone`.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import stat
from typing import Any, NamedTuple

import shmq

FILE = "shards.shmq"
VERSION = 1
BIT_MAX = 10
OPENING, OPEN, FINISHED, GONE = "opening", "open", "finished", "gone"
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,64}")
_LARGEST = 16 << 20


class Shard(NamedTuple):
    """
    One shard of a root.

    Attributes:
        number: what it is called for as long as the root lives: its index, for the bits that the root began with;
            later `bit << 10 | index`. Spark's partition, too.
        bit, index: it is that one of 2^bit.
        path: the directory of its queue.
        state: of all shards of its bit.
    """

    number: int
    bit: int
    index: int  # type: ignore[assignment]  # hides what nobody asks of a pair
    path: str
    state: str


@dataclasses.dataclass(frozen=True)
class Map:
    """
    What a root consists of. It does not change; the root has another one then.

    Attributes:
        path: the root.
        prefix: what the names of its shards begin with; mostly nothing.
        bits: (bit, state), in the order in which they were opened.
        consumers: every name, and the options that it was made with.
        generation: how often it was written.
    """

    path: str
    prefix: str
    bits: tuple[tuple[int, str], ...]
    consumers: dict[str, dict[str, Any]]
    generation: int = 0

    @property
    def open_bit(self) -> int:
        """What is put goes to one of 2^this."""
        return next(bit for bit, state in reversed(self.bits) if state == OPEN)

    @property
    def growing_to(self) -> int | None:
        """The bits that are being opened; None when none are."""
        return next((bit for bit, state in self.bits if state == OPENING), None)

    def of_bit(self, bit: int) -> list[Shard]:
        """The shards of those bits, in order."""
        return [self._shard(bit, index) for index in range(1 << bit)]

    def live(self) -> list[Shard]:
        """All shards that are there, the oldest bits first."""
        return [shard for bit, state in self.bits if state != GONE for shard in self.of_bit(bit)]

    def parent(self, shard: Shard) -> Shard | None:
        """The shard in which what belongs into that one lay before it was opened; None when there is none any more."""
        before = [bit for bit, state in self.bits if bit < shard.bit and state != GONE]
        return self._shard(before[-1], shard.index & ((1 << before[-1]) - 1)) if before else None

    def _shard(self, bit: int, index: int) -> Shard:
        number = index if bit == self.bits[0][0] else bit << 10 | index
        return Shard(number, bit, index, os.path.join(self.path, directory(self.prefix, bit, index)), self._state(bit))

    def _state(self, bit: int) -> str:
        return dict(self.bits)[bit]

    def with_states(self, *bits: tuple[int, str]) -> Map:
        """The same, in which those bits are in those states."""
        return dataclasses.replace(self, bits=tuple({**dict(self.bits), **dict(bits)}.items()))

    def with_consumer(self, name: str, options: dict[str, Any] | None) -> Map:
        """The same, with that name; without it, for None."""
        rest = {known: its for known, its in self.consumers.items() if known != name}
        return dataclasses.replace(self, consumers=rest if options is None else {**rest, name: options})


def directory(prefix: str, bit: int, index: int) -> str:
    """What that shard's directory is called, as sej has it: `[prefix.]<bit>.<index>`; of bit 0 `prefix` alone."""
    if bit == 0:
        return prefix
    return f"{prefix}.{bit:x}.{index:03x}" if prefix else f"{bit:x}.{index:03x}"


def check_prefix(prefix: object, bit: int) -> str:
    """
    The prefix, if shards can be called so.

    Raises:
        TypeError, ValueError: they cannot.
    """
    if not isinstance(prefix, str):
        raise TypeError(f"prefix={prefix!r}: a str is wanted, not {type(prefix).__name__}")
    if not _PREFIX.fullmatch(prefix) or prefix == "members":
        raise ValueError(f"prefix={prefix!r}: up to 64 of A-Z a-z 0-9 _ - are wanted, and not 'members'")
    if bit == 0 and not prefix:
        raise ValueError("shards=1 needs a prefix=: the directory of a single shard is called by its prefix alone")
    return prefix


def read(path: str) -> Map | None:
    """
    The map of the root at *path*; None when there is none.

    Raises:
        BadFormat: it is of a newer version, or no file.
        Corrupt: it does not agree with its checksum.
        Unsafe: it is a link, or somebody else's.
    """
    if not os.path.lexists(os.path.join(path, FILE)):  # or it is not ours to look, which a queue's opening explains
        return None
    try:
        fd = open_file(path, FILE, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(fd, "rb") as file:
        content = file.read(_LARGEST)
    line, _, mark = content.partition(b"\n")
    if mark.strip() != _mark(line):
        raise shmq.Corrupt(f"cannot open {path}: its {FILE} does not agree with its checksum; nothing was changed")
    told = json.loads(line)
    if told["version"] != VERSION:
        raise shmq.BadFormat(f"cannot open {path}: its {FILE} is of version {told['version']!r}; this reads {VERSION}")
    bits = tuple((int(bit), str(state)) for bit, state in told["bits"])
    return Map(os.path.abspath(path), told["prefix"], bits, told["consumers"], told["generation"])


def open_file(path: str, name: str, flags: int) -> int:
    """
    A descriptor of one of the files in the root at *path*, which must be a regular file of ours.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        BadFormat: there is something that is no file.
        Unsafe: it is a link, or somebody else's.
    """
    place = os.path.join(path, name)
    try:  # without blocking: it may be a pipe, which nobody writes
        fd = os.open(place, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    except OSError as problem:
        if problem.errno in (errno.EISDIR, errno.ENXIO):
            raise shmq.BadFormat(f"cannot open {path}: its {name} is not a file; nothing was changed") from None
        if problem.errno == errno.ELOOP:
            raise shmq.Unsafe(f"cannot open {path}: its {name} is a symbolic link; nothing was changed") from None
        if problem.errno in (errno.EACCES, errno.EPERM):
            raise shmq.Unsafe(
                f"cannot open {path}: this user may not open its {name} ({problem.strerror}); it is somebody else's"
            ) from None
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise shmq.BadFormat(f"cannot open {path}: its {name} is not a file; nothing was changed")
        if found.st_uid not in (os.geteuid(), 0):
            raise shmq.Unsafe(f"cannot open {path}: its {name} is user {found.st_uid}'s; nothing was changed")
    except BaseException:
        os.close(fd)
        raise
    return fd


def state_of(path: str) -> tuple[int, ...]:
    """What differs once the map was written anew."""
    try:
        found = os.stat(os.path.join(path, FILE))
    except FileNotFoundError:
        raise shmq.NotFound(f"{path} was deleted: its {FILE} is gone") from None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def write(made: Map) -> Map:
    """Replace the map. Under the root's lock. It is on the disk when this returns."""
    made = dataclasses.replace(made, generation=made.generation + 1)
    told = {"version": VERSION, "generation": made.generation, "prefix": made.prefix, "bits": made.bits}
    line = json.dumps({**told, "consumers": made.consumers}, separators=(",", ":")).encode()
    name = os.path.join(made.path, f"{FILE}.new")
    fd = open_file(made.path, f"{FILE}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(fd, "wb") as file:
        file.write(line + b"\n" + _mark(line) + b"\n")
        file.flush()
        os.fsync(fd)
    os.replace(name, os.path.join(made.path, FILE))
    sync_directory(made.path)
    return made


def sync_directory(path: str) -> None:
    """Have the names in it on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _mark(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=16).hexdigest().encode()

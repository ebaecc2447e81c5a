"""Small files with a checksum, written whole: what a staged set holds, whose turn it was, what was adopted."""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import time

from shmq import _native, errors, later
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import boots, files, sync
from shmq.storage.paths import DEDUP, FORWARDED, LEDGER, UPSTREAM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from shmq.storage.directory import Directory

_HEAD = struct.Struct("<8sII")  # magic, bytes of the body, CRC-32C of the body
HEAD_BYTES = _HEAD.size
_MAGIC = b"shmqadpt"
_RECORD_MAX = 256 << 20
PRODUCERS = 1 << 16
"""How many producers the ledger keeps: those whose last batch is the newest."""


class Manifest(NamedTuple):
    """What one staged set holds. Every list has one entry for each chunk, in order."""

    producer: bytes
    """Who staged it; empty when it was not said."""
    sequence: int
    files: list[str]
    chunk_ids: list[int]
    counts: list[int]
    """Ordinals."""
    sizes: list[int]
    parts: Sequence[str] = ()
    """The sets whose chunks these are, when it has none of its own; then files are <set>/<file>."""


class Handed(NamedTuple):
    """What one set holds that was handed over; lists as in a Manifest."""

    owner: bytes
    """For whom; empty when it was not said."""
    files: list[str]
    chunk_ids: list[int]
    counts: list[int]
    sizes: list[int]
    boot: bytes
    since_boot_ns: int
    time_ns: int

    def age_ns(self) -> int:
        """Since it was handed over: by the clock that nobody sets, or after a reboot by the wall clock."""
        if self.boot == boots.boot_id():
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - self.since_boot_ns
        return time.time_ns() - self.time_ns


class Adopted(NamedTuple):
    """The last batch of one producer."""

    sequence: int
    first: int
    indexes: int


def write_record(directory: int, name: str, content: Any, path: str, what: str) -> None:
    """Make a small file, synced with its directory. One that is there stays."""
    body = pack(content)
    fd = files.new_file(directory, len(body), path)
    with fd:
        sync.write(fd, body, 0, what)
        sync.data(fd, what)
        files.link_file(fd, directory, name, path)
    synced_directory(directory, what)


def synced_directory(directory: int, what: str) -> None:
    """Have the names in it on the disk, *what* is one of."""
    where = {"ledger": "home", "dedup": "home", "forwarded": "home", "upstream": "home", "forward": "consumers"}
    sync.directory(directory, where.get(what, "set"))


def pack(content: Any) -> bytes:
    """A small file with a checksum, as bytes."""
    later.ready("msgspec")
    import msgspec  # noqa: PLC0415  # only who adopts pays for it

    return with_head(msgspec.msgpack.encode(content))


def with_head(body: bytes) -> bytes:
    """That body behind its length and its checksum."""
    return _HEAD.pack(_MAGIC, len(body), _native.crc32c(body)) + body


@functools.cache
def _kinds() -> dict[str, Any]:
    """What each of the small files holds. Their checksum is right also where somebody means ill."""
    later.ready("typing")
    from typing import Annotated  # noqa: PLC0415

    later.ready("msgspec")
    import msgspec  # noqa: PLC0415

    number: Any = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    count: Any = Annotated[int, msgspec.Meta(ge=0, le=_native.CHUNK_BYTES_MAX)]
    apart: Any = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    identity: Any = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    form: Any = tuple  # what is made here is for msgspec alone
    chunks = (list[str], list[number], list[count], list[count])
    return {
        "manifest": form[(bytes, number, *chunks, list[str])],
        "handed": form[(bytes, *chunks, bytes, number, number)],
        "placed": form[number, number, bool],
        LEDGER: dict[bytes, form[number, number, number]],
        DEDUP: form[number, bytes, bytes],
        "forward": form[identity, list[str], bytes, number],
        FORWARDED: dict[identity, form[number, bytes, number]],
        UPSTREAM: form[apart, number],
    }


def read_record(home: Directory, directory: int, name: str, where: str, *, kind: str | None = None) -> Any:
    """
    What is in a small file: in its form, whatever the values. Not more of it is read than it says that there is.

    Raises:
        FileNotFoundError: there is none.
        Corrupt: it fails its checksum, or holds something else.
    """
    later.ready("msgspec")
    import msgspec  # noqa: PLC0415

    fd, size = home.open(directory, name, writable=False)
    with fd:
        head = os.pread(fd, _HEAD.size, 0)
        magic, length, crc = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0, 0)
        reason = "it fails its checksum"
        if magic == _MAGIC and length <= _RECORD_MAX and size == _HEAD.size + length:
            body = os.pread(fd, length, _HEAD.size)
            if crc == _native.crc32c(body):
                try:
                    return msgspec.msgpack.decode(body, type=_kinds()[kind or name])
                except (msgspec.DecodeError, ValueError, TypeError, RecursionError, OverflowError) as problem:
                    reason = f"it holds something else ({problem})"
    raise errors.Corrupt(f"cannot read {where}/{name}: {reason}; nothing was changed")


def make_record(home: Directory, name: str, content: Any, what: str) -> None:
    """Make a small file, synced, by one step; one that is there, or comes meanwhile, stays. Needs no lock."""
    write_record(home.fd, name, content, home.path, what)


def replace_record(home: Directory, name: str, new: str, content: Any, what: str) -> None:
    """Replace a small file, synced; *new* is its name until it is whole. Under the administrative lock only."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=home.fd)
    write_record(home.fd, new, content, home.path, what)
    os.rename(new, name, src_dir_fd=home.fd, dst_dir_fd=home.fd)
    sync.directory(home.fd, "home")

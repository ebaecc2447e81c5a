"""
What is put for a task: a fixed head, the function's name, its `__main__`, how it is retried, then what is packed.

    version:u8 flags:u8 priority:i8 0 max_attempts:u32 limit:f64 deadline:i64 wall:i64 boot:u64
    submitter:u64 number:u64 name:u16 main:u16 policy:u32

Little-endian. (submitter, number) is the task's id: 16 bytes that no other task has. Its key, if any, is the message's.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

from shmq import errors

VERSION = 1
_HEAD = struct.Struct("<BBbxIdqqQQQHHI")
_ID = struct.Struct("<QQ")
HAS_KEY = 1
ID_BYTES = _ID.size


def boot() -> int:
    """A number for this boot: clocks that count from it compare within it alone."""
    global _boot  # noqa: PLW0603
    if not _boot:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            _boot = int(file.read().strip().replace("-", "")[:16], 16) or 1
    return _boot


_boot = 0


def boot_ns() -> int:
    """Time since this boot, which nobody sets; it goes on while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def id_of(submitter: int, number: int) -> bytes:
    """A task's id."""
    return _ID.pack(submitter, number)


@dataclass(slots=True)
class Task:
    """
    One task, as it is put.

    Attributes:
        name: the function's, or nothing when it is packed with its arguments.
        content: what is packed.
        submitter, number: which task it is.
        main: the file of `__main__`, where the task needs one.
        priority: 1, 0, -1.
        max_attempts: how often it is begun at most.
        limit: seconds that one attempt may take; 0 for any number.
        deadline: until when it must have begun, in ns since the boot *boot*; 0 for never.
        wall: the same by the wall clock, for another boot.
        policy: a pickle of (exceptions that are retried, seconds before the first retry, the most seconds); or nothing.
        keyed: whether its message has a key, by which its outcome is kept.
    """

    name: str
    content: bytes
    submitter: int = 0
    number: int = 0
    main: str = ""
    priority: int = 0
    max_attempts: int = 3
    limit: float = 0.0
    deadline: int = 0
    wall: int = 0
    boot: int = 0
    policy: bytes = b""
    keyed: bool = False

    @property
    def id(self) -> bytes:
        """Which task it is."""
        return _ID.pack(self.submitter, self.number)

    def packed(self) -> bytes:
        """As a payload."""
        name, main = self.name.encode(), self.main.encode("utf-8", "surrogateescape")
        head = _HEAD.pack(
            VERSION,
            HAS_KEY if self.keyed else 0,
            self.priority,
            self.max_attempts,
            self.limit,
            self.deadline,
            self.wall,
            self.boot,
            self.submitter,
            self.number,
            len(name),
            len(main),
            len(self.policy),
        )
        return b"".join((head, name, main, self.policy, self.content))

    def expired(self) -> bool:
        """Whether its deadline has passed."""
        if not self.deadline:
            return False
        if self.boot == boot():
            return boot_ns() > self.deadline
        return time.time_ns() > self.wall


def read(payload: bytes) -> Task:
    """
    The task in there.

    Raises:
        BadFormat: it is of a newer version.
        Corrupt: it is no task.
    """
    if payload[:1] and payload[0] > VERSION:
        raise errors.BadFormat(f"a task of version {payload[0]}; this library knows {VERSION}")
    try:
        head = _HEAD.unpack_from(payload)
        version, flags, priority, most, limit, deadline, wall, boot_id, submitter, number, name, main, policy = head
        at = _HEAD.size
        end = at + name + main + policy
        if version != VERSION or end > len(payload):
            raise ValueError(f"version {version}, {len(payload)} bytes")
        return Task(
            payload[at : at + name].decode(),
            payload[end:],
            submitter,
            number,
            payload[at + name : at + name + main].decode("utf-8", "surrogateescape"),
            priority,
            most,
            limit,
            deadline,
            wall,
            boot_id,
            payload[end - policy : end],
            bool(flags & HAS_KEY),
        )
    except (struct.error, ValueError) as problem:
        raise errors.Corrupt(f"a payload of {len(payload)} bytes is not a task: {problem}") from problem


def id_in(payload: bytes) -> bytes:
    """The id alone."""
    return payload[_ID_AT : _ID_AT + ID_BYTES]


_ID_AT = struct.calcsize("<BBbxIdqqQ")


def name_in(payload: bytes) -> str:
    """The function's name alone."""
    length = int.from_bytes(payload[_ID_AT + ID_BYTES : _ID_AT + ID_BYTES + 2], "little")
    return payload[_HEAD.size : _HEAD.size + length].decode()


class Quick:
    """Makes tasks that have nothing but a function and arguments: of their head only the number is packed each time."""

    def __init__(self, submitter: int, max_attempts: int) -> None:
        """Of one submitter."""
        self._head = Task("", b"", submitter, 0, max_attempts=max_attempts).packed()[:_NUMBER_AT]
        self._names: dict[tuple[str, str], bytes] = {}

    def packed(self, number: int, name: str, main: str, content: bytes) -> bytes:
        """One of them, as a payload."""
        names = self._names.get((name, main))
        if names is None:
            names = self._encoded(name, main)
        return b"".join((self._head, _NUMBER.pack(number), names, content))

    def _encoded(self, name: str, main: str) -> bytes:
        first, second = name.encode(), main.encode("utf-8", "surrogateescape")
        if len(self._names) > _NAMES_MOST:
            self._names.clear()
        found = self._names[name, main] = _LENGTHS.pack(len(first), len(second), 0) + first + second
        return found


_NUMBER_AT = struct.calcsize("<BBbxIdqqQQ")
_NUMBER, _LENGTHS = struct.Struct("<Q"), struct.Struct("<HHI")
_LENGTHS_AT = struct.calcsize("<BBbxIdqqQQQ")
_NAMES_MOST = 1024


def plain_of(payload: bytes) -> bytes | None:
    """
    What tasks have in common of which this is one: their head, but for its submitter, and their names. None where it
    has more than a function and arguments, or is no task of this version.
    """
    if len(payload) < _HEAD.size or payload[0] != VERSION:
        return None
    name, main, policy = _LENGTHS.unpack_from(payload, _LENGTHS_AT)
    return None if policy else payload[:_ID_AT] + payload[_LENGTHS_AT : _HEAD.size + name + main]


def size_before(common: bytes) -> int:
    """Bytes of such a payload before what is packed."""
    return len(common) + ID_BYTES


def type_of(payload: bytes) -> int:
    """The message type of its outcome, by which submitters tell theirs."""
    return int.from_bytes(payload[_ID_AT : _ID_AT + 2], "little")

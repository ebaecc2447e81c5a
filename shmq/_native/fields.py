"""A message's fields, and batches of messages, as the core takes them."""

from __future__ import annotations

from shmq._core import ffi, lib
from shmq._native.core import NOW, error
from shmq.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


Fixed = tuple[int, bytes]
"""Optional fields of fixed size: their flags, and their bytes in the order of the flags."""


def header_fields(
    key: bytes | None, record_type: int, time_ns: int | None, headers: bytes | None, fixed: Fixed = (0, b"")
) -> tuple[Any, tuple[bytes, bytes, bytes]]:
    """A message's fields as the core takes them, and what must stay alive as long as they do."""
    key = key or b""
    headers = headers or b""
    key_buffer, headers_buffer = ffi.from_buffer("char[]", key), ffi.from_buffer("char[]", headers)
    moment = NOW if time_ns is None else time_ns
    fixed_buffer = ffi.from_buffer("char[]", fixed[1])
    fields = ffi.new(
        "shmq_fields *",
        (key_buffer, len(key), record_type, moment, headers_buffer, len(headers), fixed[0], fixed_buffer),
    )
    return fields, (key, headers, fixed[1])


def readable(view: memoryview) -> Any:
    """
    A contiguous buffer, as the core's calls take it; for a `with`.

    It must be released: the garbage collector crashes on one that it finds in a cycle, as in the frames of a kept
    exception, when it clears the memoryview first.
    """
    return ffi.from_buffer("char[]", view)


class Batch:
    """Messages of one put_many, as the core takes them: end to end, with their lengths."""

    def __init__(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[bytes] | None,
        types: Sequence[int] | None,
        times_ns: Sequence[int] | None,
        headers: Sequence[bytes] | None,
        fixed: Fixed = (0, b""),
    ) -> None:
        """Copies nothing but what must lie end to end."""
        self._fixed = fixed
        self.count = len(payloads)
        self._lengths = ffi.new("uint32_t[]", list(map(len, payloads)))
        self._key_lengths = ffi.NULL if keys is None else ffi.new("uint32_t[]", list(map(len, keys)))
        self._header_lengths = ffi.NULL if headers is None else ffi.new("uint32_t[]", list(map(len, headers)))
        self.arguments = (
            self.count,
            b"".join(payloads),
            self._lengths,
            ffi.NULL if keys is None else b"".join(keys),
            self._key_lengths,
            ffi.NULL if types is None else ffi.new("uint32_t[]", list(types)),
            ffi.NULL if times_ns is None else ffi.new("int64_t[]", list(times_ns)),
            ffi.NULL if headers is None else b"".join(headers),
            self._header_lengths,
            fixed[0],
            fixed[1],
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the payloads."""
        return int(sum(ffi.unpack(self._lengths, self.count)))

    def region_bytes(self) -> int:
        """Bytes of the region that the batch needs."""
        return int(
            lib.shmq_region_bytes(self.count, self._lengths, self._key_lengths, self._header_lengths, self._fixed[0])
        )


class Part(NamedTuple):
    """A column of bytes in the layout of Arrow: where its offsets and its values are, and how many bytes these."""

    offsets: int
    values: int
    nbytes: int


class ArrowBatch(Batch):
    """The same of columns in the layout of Arrow; nothing is copied before the core copies it into the queue."""

    def __init__(
        self,
        count: int,
        payloads: Part,
        keys: Part | None,
        types: int,
        times_ns: int,
        headers: Part | None,
        fixed: Fixed,
        keep: Any,
    ) -> None:
        """
        *types* and *times_ns* are addresses of uint32 and int64, or 0. *keep* has what all of this points into.

        Raises:
            Corrupt: the offsets of a column do not ascend within its values.
        """
        self._fixed = fixed
        self._keep = keep
        self.count = count
        values, self._lengths = _values(count, payloads)
        key_values, self._key_lengths = _values(count, keys)
        header_values, self._header_lengths = _values(count, headers)
        self.arguments = (
            count,
            values,
            self._lengths,
            key_values,
            self._key_lengths,
            ffi.cast("uint32_t *", types),
            ffi.cast("int64_t *", times_ns),
            header_values,
            self._header_lengths,
            fixed[0],
            fixed[1],
        )


def _values(count: int, part: Part | None) -> tuple[Any, Any]:
    """Where the first value of a column begins, and the lengths of all."""
    if part is None:
        return ffi.NULL, ffi.NULL
    lengths = ffi.new("uint32_t[]", count)
    first = lib.shmq_lengths(count, ffi.cast("int32_t *", part.offsets), part.nbytes, lengths)
    if first < 0:
        raise error(first, "cannot put a record batch")
    return ffi.cast("char *", part.values + first), lengths


def check_fields(fields: Any, length: int, tried: str) -> None:
    """
    Refuse a message that no chunk can have.

    Raises:
        TooLarge: it is one.
    """
    code = lib.shmq_check_fields(fields, length)
    if code != lib.SHMQ_OK:
        raise error(code, tried)


class Each:
    """Messages with fields of their own, for one claim."""

    def __init__(self, parts: Sequence[tuple[Any, bytes]]) -> None:
        """Of (what `header_fields` made, payload); both must live as long as this."""
        self.count = len(parts)
        self._keep = parts
        self.nbytes = sum(len(payload) for _, payload in parts)
        self.fields = ffi.new("shmq_fields[]", self.count)
        self._payloads = [ffi.from_buffer("char[]", payload) for _, payload in parts]
        self.payloads = ffi.new("char *[]", self._payloads)
        self.lengths = ffi.new("uint64_t[]", [len(payload) for _, payload in parts])
        self.region = 0
        for at, (fields, payload) in enumerate(parts):
            self.fields[at] = fields[0]
            self.region += record_bytes(fields, len(payload))


def record_bytes(fields: Any, length: int) -> int:
    """Bytes of the region that one message needs."""
    return int(lib.shmq_record_bytes(fields, length))

"""
Times in a message: when it expires, and until when it is held back.

Each names its boot. Within that boot it counts on the clock since boot, so setting the wall clock moves nothing; after
a reboot the wall clock decides.
"""

from __future__ import annotations

import struct
import time

from shmq import _native, given
from shmq.storage import boots

FIELD = struct.Struct("<qqQ")  # layout.h, struct field_when
_FOREVER = 1e9
_tag = 0


def _this_boot() -> int:
    global _tag  # noqa: PLW0603  # a process lives in one boot
    _tag = _tag or boots.boot_tag()
    return _tag


def _field(seconds: float) -> bytes:
    after = int(min(seconds, _FOREVER) * 1e9)
    return FIELD.pack(time.time_ns() + after, _native.boottime_ns() + after, _this_boot())


def when(ttl: float | None, delay: float | None = None) -> _native.Fixed:
    """
    What a record says about *ttl* and *delay*, in seconds from now; None is "none".

    Raises:
        TypeError, ValueError: one is negative, or no number.
    """
    flags, fields = 0, b""
    if ttl is not None:
        flags, fields = _native.RECORD_EXPIRY, _field(given.seconds("ttl", ttl, none=True))
    if delay is not None:
        later = given.seconds("delay", delay, none=True)
        if later:
            flags, fields = flags | _native.RECORD_DELAY, fields + _field(later)
    return flags, fields


def wall_ns(field: bytes) -> int:
    """The moment of such a field in ns since 1970, as the wall clock is now."""
    wall: int
    wall, boottime, tag = FIELD.unpack(field)
    return wall if tag != _this_boot() else time.time_ns() + int(boottime) - _native.boottime_ns()

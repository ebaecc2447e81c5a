"""
How long there is. A deadline travels as a time of the boot clock, which all processes share and nobody sets.

What is called inside a method has no more time than the method itself.
"""

from __future__ import annotations

import math
import time
import zlib

NEVER = 0
_LONGEST = 1e9
_TOLD = "timeout={!r}: a number of seconds is wanted, or None for as long as it takes"


def _boot() -> bytes:
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return zlib.crc32(file.read()).to_bytes(4, "big")
    except OSError:
        return bytes(4)


BOOT = _boot()
"""Which boot this is: a time of its clock says nothing in another one."""


def now_ns() -> int:
    """The time since boot."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def of(timeout: float | None, inherited: int = NEVER) -> int:
    """
    The deadline of what has *timeout* seconds: the *inherited* one, if that comes first; NEVER without any.

    Raises:
        TypeError, ValueError: it is no number of seconds.
    """
    if timeout is None:
        return inherited
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(_TOLD.format(timeout) + f", not {type(timeout).__name__}")
    if math.isnan(timeout) or timeout < 0:
        raise ValueError(_TOLD.format(timeout))
    own = now_ns() + int(min(timeout, _LONGEST) * 1e9)
    return own if inherited == NEVER else min(own, inherited)


def seconds_to(deadline_ns: int) -> float:
    """How long until then; not below 0."""
    return max((deadline_ns - now_ns()) / 1e9, 0.0)


def is_over(deadline_ns: int) -> bool:
    """Whether it has passed."""
    return deadline_ns != NEVER and now_ns() >= deadline_ns

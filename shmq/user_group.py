"""
A group of users that share a queue: by name or by number, and whether this process is in it.

What a queue goes by is the number, as the files have it: containers may have other names for it, or none.
"""

from __future__ import annotations

import functools
import os
import stat

from shmq import later

DIRECTORY_MODE, FILE_MODE = 0o2770, 0o660
"""Exactly these, of what is shared. By the setgid bit, whatever is made in such a directory is the group's."""
_NUMBER_MAX = (1 << 32) - 2


@functools.cache
def _unmapped() -> int:
    """The number by which a user namespace shows every group that it has no number for."""
    try:
        with open("/proc/sys/kernel/overflowgid", "rb", buffering=0) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534


def number(given: object) -> int:
    """
    The number of a group that is given by name or by number.

    Raises:
        ValueError: this machine knows no group of that name; or it is the one that stands for any other.
        TypeError: it is neither.
    """
    if isinstance(given, str):
        found = _by_name(given)
    elif isinstance(given, int) and not isinstance(given, bool):
        found = given
    else:
        raise TypeError(f"group={given!r}: the name of a group, or its number, is wanted, not {type(given).__name__}")
    if not 0 <= found <= _NUMBER_MAX:
        raise ValueError(f"group={given!r}: from 0 to {_NUMBER_MAX}")
    if found == _unmapped():
        raise ValueError(
            f"group={given!r}: {found} is what every group is shown as that has no number here, so it names none"
        )
    return found


def _by_name(name: str) -> int:
    later.ready("grp")
    import grp  # noqa: PLC0415  # only who shares a queue

    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError, UnicodeError):
        hint = f"; write group={name} for a number" if name.isdecimal() else ""
        raise ValueError(f"group={name!r}: this machine knows no group of that name{hint}") from None


def told(group: int) -> str:
    """It in words, with its name where it has one here."""
    later.ready("grp")
    import grp  # noqa: PLC0415

    try:
        return f"group {group} ({grp.getgrgid(group).gr_name})"
    except KeyError:
        return f"group {group}"


def has_us(group: int) -> bool:
    """Whether this process is in it."""
    return group == os.getegid() or group in os.getgroups()


def refusal(group: int) -> str:
    """Why this process may not take part in what that group shares; nothing, if it may."""
    if group == _unmapped():
        return f"its group has no number here ({group} stands for any): map it into this user namespace"
    if not has_us(group):
        return f"{told(group)} shares it, and user {os.geteuid()} is not in that group"
    return ""


def of_directory(info: os.stat_result) -> int | None:
    """The group that shares the directory; None where it is one user's alone."""
    return info.st_gid if stat.S_IMODE(info.st_mode) == DIRECTORY_MODE else None

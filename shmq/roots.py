"""
Roots of shards (shmq/shards), as far as whoever opens a queue has to know them: a root is no queue, and the end of one
of its shards is the map's to say.
"""

from __future__ import annotations

import os

from shmq import errors, given

_MAP = "shards.shmq"
"""The file that makes a directory a root of shards; see docs/how-to/shards.md."""
_LEVELS = "levels.json"
"""The file that makes a directory one of priorities; see docs/how-to/priorities.md."""
_PREFIX_LENGTH = 64
_HEX = frozenset("0123456789abcdef")


def is_root(path: str) -> bool:
    """Whether that directory is a root of shards."""
    return os.path.lexists(os.path.join(path, _MAP))


def is_shard(path: str) -> bool:
    """Whether the queue there is a shard of the root that it lies in."""
    above, name = os.path.split(path)
    return _may_be_shard(name) and is_root(above)


def _may_be_shard(name: str) -> bool:
    """
    Whether shards are called so: PREFIX.0.123, or without that prefix; a single one by its prefix alone. The names of
    their dead letters end otherwise.
    """
    *before, group, number = name.split(".") if "." in name else (name, "0", "123")
    is_place = len(group) == 1 and len(number) == 3 and _HEX.issuperset(group + number)
    return is_place and len(before) <= 1 and all(given.is_name(each, _PREFIX_LENGTH) for each in before)


def refuse(path: str, *, create: bool) -> None:
    """
    Refuse a root where a queue is wanted, which is not there; *create*: it would be made. Likewise a directory of
    priorities, unless it would be made there.

    Raises:
        BadFormat, NotFound: it is one; nothing was changed.
    """
    if is_root(path):
        kind = errors.BadFormat if create else errors.NotFound
        raise kind(
            f"cannot open {path}: it is a root of shards, and no queue: shmq.shards.open opens it, shmq.shards.delete "
            "deletes it; what takes a queue takes a shard's directory in it"
        )
    if not create and os.path.lexists(os.path.join(path, _LEVELS)):
        raise errors.NotFound(
            f"cannot open {path}: it is a directory of priorities, and no queue: shmq.priorities.open opens it, "
            "shmq.priorities.delete deletes it; what takes a queue takes a level's directory in it, as "
            f"{os.path.join(path, '0')}"
        )

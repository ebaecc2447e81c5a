"""
Roots of shards (shmq/shards), as far as whoever opens a queue has to know them: a root is no queue, and the end of one
of its shards is the map's to say.
"""

from __future__ import annotations

import os
import re

from shmq import errors

_MAP = "shards.shmq"
"""The file that makes a directory a root of shards; see docs/how-to/shards.md."""
_LEVELS = "levels.json"
"""The file that makes a directory one of priorities; see docs/how-to/priorities.md."""
_SHARD = re.compile(r"([A-Za-z0-9_-]{1,64}\.)?[0-9a-f]\.[0-9a-f]{3}|[A-Za-z0-9_-]{1,64}")
"""How shards are called; a single one by its prefix alone. Their dead letters' names end otherwise."""


def is_root(path: str) -> bool:
    """Whether that directory is a root of shards."""
    return os.path.lexists(os.path.join(path, _MAP))


def is_shard(path: str) -> bool:
    """Whether the queue there is a shard of the root that it lies in."""
    above, name = os.path.split(path)
    return _SHARD.fullmatch(name) is not None and is_root(above)


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

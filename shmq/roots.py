"""Roots of shards (shmq/shards), as far as the core has to know them: the end of a shard is its root's to say."""

from __future__ import annotations

import os
import re

_MAP = "shards.shmq"
"""The file that makes a directory a root of shards; see docs/how-to/shards.md."""
_SHARD = re.compile(r"([A-Za-z0-9_-]{1,64}\.)?[0-9a-f]\.[0-9a-f]{3}|[A-Za-z0-9_-]{1,64}")
"""How shards are called; a single one by its prefix alone. Their dead letters' names end otherwise."""


def is_root(path: str) -> bool:
    """Whether that directory is a root of shards."""
    return os.path.lexists(os.path.join(path, _MAP))


def is_shard(path: str) -> bool:
    """Whether the queue there is a shard of the root that it lies in."""
    above, name = os.path.split(path)
    return _SHARD.fullmatch(name) is not None and is_root(above)

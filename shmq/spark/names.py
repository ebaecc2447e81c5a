"""What queues and shards are called, in the directory that holds them."""

from __future__ import annotations

import re

SHARD = re.compile(r"((?:[A-Za-z0-9_-]*\.)?[0-9a-f])\.([0-9a-f]{3})")
"""`[prefix.]<bit>.<index>`: which queue's it is, and its number."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_topic(word: str) -> bool:
    """Whether a queue may be called so among others, by Kafka's rules."""
    return _TOPIC.fullmatch(word) is not None and word not in {".", ".."} and not SHARD.fullmatch(word)

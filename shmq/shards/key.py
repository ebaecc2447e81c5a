"""
Which shard a key belongs to: the same in every process, on every machine, in every version.

The low bits of a hash: so with one bit more, what was in shard *i* of 2^n is in *i* or in *i* + 2^n.
"""

from __future__ import annotations

import functools
import hashlib


def shard_of(key: bytes, bit: int) -> int:
    """The index among 2^*bit* shards of the one that *key* belongs to: the low *bit* bits of its hash."""
    return hash_of(key) & ((1 << bit) - 1)


def hash_of(key: bytes) -> int:
    """The 8 bytes of BLAKE2b (digest_size=8, no key, no salt) of *key*, read as a little-endian number."""
    return _remembered(key) if len(key) <= _SHORT else _computed(key)


def _computed(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


_SHORT = 64
"""Bytes of the keys that are remembered: mostly the same come again, and to hash them costs more than to put."""
_remembered = functools.lru_cache(8192)(_computed)

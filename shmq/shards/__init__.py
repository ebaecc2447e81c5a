"""
Shards: one stream over 2^n queues in one directory; what has one key lies in one of them, in order.

    events = shmq.shards.open("events", shards=8)
    events.put(b"payload", key=b"user-7")        to the shard of its key; without a key, to each in turn
    c = events.consumer("billing", group=True)   members share the shards out among themselves
    m = c.get()                                  in order within a shard, so for each key
    events.grow()                                to twice as many, while all go on

A map of the package:
    key         which shard a key belongs to
    map         the file that says which shards there are
    place       the directory, and its lock
    opened      its queues, open in this process
    doors       `open` and `delete`
    root        the shards of one directory
    putting     where a put goes
    growth      from 2^n to 2^(n+1) shards
    consumer    one name at all shards: getting, finishing
    hold        which shards a consumer has
    seats       who else is a member of its group
    reader      every message, by a place in each shard
"""

from shmq.shards.consumer import Consumer
from shmq.shards.doors import delete, open  # noqa: A004  # shmq.shards.open, as shmq.open
from shmq.shards.key import hash_of, shard_of
from shmq.shards.map import Map, Shard, read
from shmq.shards.putting import Place
from shmq.shards.reader import Reader
from shmq.shards.root import Shards

__all__ = ["Consumer", "Map", "Place", "Reader", "Shard", "Shards", "delete", "hash_of", "open", "read", "shard_of"]

"""
The rights that tokens give, and which call needs which: at the services of the RFC, of our own client, and of Flight.

The same table, for people, stands in docs/how-to/serve.md; a test holds it against this one.
"""

from __future__ import annotations

APPEND, READ, MANAGE, REPLICATE = "append", "read", "manage", "replicate"
ALL = frozenset({APPEND, READ, MANAGE, REPLICATE})
ABOUT = (APPEND, READ, MANAGE)
"""Those that are about a queue which is served. With one of them it is there for whoever has it."""

RFC = {
    "createAppender": APPEND,
    "submit": APPEND,
    "createTailer": READ,
    "hasNext": READ,
    "lastWrittenIndex": READ,
}
"""The calls of Chronicle's RFC. Whoever has an appender may ask that for its last index, too."""

SHMQ1 = {
    "producer": APPEND,
    "put": APPEND,
    "consumer": READ,
    "get": READ,
    "credit": READ,
    "again": READ,
    "ack": READ,
    "back": READ,
    "settle": READ,
    "seek": READ,
    "peek": READ,
    "figures": READ,
    "read": READ,
    "call": None,
    "shut": None,
    "stop": None,
    "ping": None,
}
"""The verbs of our own client; None: nothing but to be there. What is behind `call` has the rights of CALLS."""

CALLS = {
    "len": READ,
    "first_index": READ,
    "next_index": READ,
    "committed_index": READ,
    "durable_index": READ,
    "finished": READ,
    "at": READ,
    "at_ns": READ,
    "message": READ,
    "messages": READ,
    "latest": READ,
    "stats": READ,
    "consumers": READ,
    "adopted": APPEND,
    "sync": APPEND,
    "drop_consumer": MANAGE,
    "rename_consumer": MANAGE,
    "shutdown": MANAGE,
    "finish": MANAGE,
}
"""What our own client asks a queue, by `call`."""

FLIGHT = {
    "queues": READ,
    "do_get": READ,
    "ends": None,
    "extents": READ,
    "at": READ,
    "hold": READ,
    "follow": READ,
    "do_put": APPEND,
    "adopt": APPEND,
    "adopted": APPEND,
    "sweep": APPEND,
}
"""What Flight's service does; None: any of the rights that are about a queue, as our own client's hello."""

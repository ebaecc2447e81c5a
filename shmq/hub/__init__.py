"""
A hub: the queues of many machines, gathered below one directory (docs/how-to/hub.md).

    hub.serve("hub/", "tcp:127.0.0.1:7000", token_file="clients")     as `shmq hub`
    hub.push("shards/", "tcp:127.0.0.1:7000", client="till-7", token=...)

Each client is known by its token, and that says what its queues are called: `till-7.orders`, or `till-7.3.005` for a
shard. They are followers (shmq/replica) of the queues at the client, with the same indexes.

A map of the package:
    clients         who may come, and what their queues may be called
    arrivals        a queue that comes by a link; one link at a time for each
    dense           the same as a journal of sej's, and the map from its offsets to our indexes
    service         the hub: where it listens, whom it lets in, how it ends
    sending         the client's side for shards; of one queue it is `replica.replicate`
"""

from __future__ import annotations

import logging

from shmq.hub.dense import Map
from shmq.hub.sending import push
from shmq.hub.service import serve

logging.getLogger("shmq").addHandler(logging.NullHandler())  # silent, unless a program listens

__all__ = ["Map", "push", "serve"]

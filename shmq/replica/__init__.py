"""
Replication: a queue that follows another one, with the same indexes, times and keys (docs/how-to/replicate.md).

    replica.replicate("orders", "/backup/orders")    until its `stop` is called

A follower is for readers. It can be promoted: then it is a queue of its own, and the one that it followed is fenced
when it comes back.
"""

from __future__ import annotations

import logging

from shmq.replica.doors import token_in
from shmq.replica.fencing import fence
from shmq.replica.holding import PREFIX
from shmq.replica.promotion import promote
from shmq.replica.service import Stop, listen, replicate

logging.getLogger("shmq").addHandler(logging.NullHandler())  # silent, unless a program listens

__all__ = ["PREFIX", "Stop", "fence", "listen", "promote", "replicate", "token_in"]

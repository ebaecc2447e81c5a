"""
Replication: a queue that follows another one, with the same indexes, times and keys (docs/how-to/replicate.md).

A follower is for readers. It can be promoted: then it is a queue of its own, and the one that it followed is fenced
when it comes back.
"""

from __future__ import annotations

from shmq.replica.follower import Follower
from shmq.replica.service import Stop, beside
from shmq.replica.source import Source

__all__ = ["Follower", "Source", "Stop", "beside"]

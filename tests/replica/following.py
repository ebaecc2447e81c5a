"""What these tests share: a queue that follows another one, in this process or in a child."""

from __future__ import annotations

import shmq
from shmq import replica
from shmq.replica import Stop
from shmq.replica.follower import Follower
from shmq.replica.service import beside
from shmq.replica.source import Source


def follow_once(source, target, name="b", **how) -> None:
    """Have all that is there. *how*: as a Follower takes it."""
    with Source(str(source), name) as there, Follower(str(target), **how) as here:
        beside(there, here, Stop(), once=True)


def follow(source, target, name="b") -> None:
    """Follow until this process is killed."""
    replica.replicate(source, target, name=name)


def content(path) -> list[tuple]:
    """All messages there are, each as it came."""
    with shmq.open(str(path), read_only=True) as queue:
        return [(m.index, m.payload, m.key, m.time_ns, m.type, m.headers) for m in queue.reader()]


def files(path) -> dict:
    """Every byte of a queue, without the page that says who is here."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "control.shmq"
    }

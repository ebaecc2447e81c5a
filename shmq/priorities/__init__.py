"""
Queues with priorities: a few levels, each of them a queue, in one directory; a consumer takes from all of them.

    jobs = shmq.priorities.open("jobs", levels=3)
    jobs.put(b"payload", priority=2)        level 0 is the most urgent, and what a put without a priority gets
    c = jobs.consumer("workers", ack="explicit")
    m = c.get()                             of the most urgent level that has something, unless a turn is due

A map of the package:
    queue       `open`, `delete`, and the levels of one directory
    consumer    one name at all levels
    turns       which level is looked at first: the bound on starvation
    place       the directory, and the file that says how many levels there are
"""

from shmq.priorities.consumer import Consumer
from shmq.priorities.queue import Priorities, delete, open  # noqa: A004  # shmq.priorities.open, as shmq.open

__all__ = ["Consumer", "Priorities", "delete", "open"]

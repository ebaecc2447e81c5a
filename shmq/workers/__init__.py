"""
Worker processes that are started, watched and replaced: what an Executor and a Flow stand on.

    def work(life, queue_path):                           # in the worker; found by its name, as pickle does
        while not life.ending:
            ready = life.wait(lambda: shmq.wait([consumer]))
            ...

    with Workers(work, ("orders",), count=4) as workers:  # forkserver; or context="spawn", "fork"
        workers.pids()

A worker ignores SIGINT, which a terminal sends to everybody; SIGTERM, `Workers.stop` and the death of its starter have
it finish what it does, and leave. A worker that dies is replaced, whoever started it is told how it ended.

A map: pool.py has Workers; started.py one worker as its starter sees it; life.py the same from within; pace.py how soon
the next one follows when they die quickly; ends.py what a fork must not take along.
"""

import logging

from shmq.workers.life import Ending, Life
from shmq.workers.pool import Workers
from shmq.workers.started import Ended

logging.getLogger("shmq").addHandler(logging.NullHandler())  # silent, unless a program listens

__all__ = ["Ended", "Ending", "Life", "Workers"]

"""
`shmq.Executor`: a `concurrent.futures.Executor` whose tasks wait in a directory, and outlive every process.

    with shmq.Executor("jobs/", max_workers=4) as ex:
        f = ex.submit(pow, 2, 10, key="two-to-the-ten")      # submitted once; found again by its key
        f.result()

A map:
    executor, tasks                     what programs call; a task with a priority, a time limit, retries
    directory, page, names              the trusted directory; what it is asked for often; what is called how in it
    task, outcome, packing, functions   what is written for a task, and for its end; arguments; functions by their names
    submitting, keyed, following        putting tasks; finding them by key; the thread that hands results to futures
    future, cancelling, mapping         what `submit` returns; who is cancelled; `map`
    turn, way_out, working, run_file    a worker: a task; how its outcome leaves; its life; what it says of itself
    guarding, serving, failures         whoever starts workers: limits, deaths; `shmq worker`; what can go wrong
"""

import logging

from shmq.executor.executor import Executor
from shmq.executor.failures import RemoteTraceback, TaskDied, TaskExpired, TaskTimedOut
from shmq.executor.future import Future
from shmq.executor.serving import serve

logging.getLogger("shmq").addHandler(logging.NullHandler())  # silent, unless a program listens

__all__ = ["Executor", "Future", "RemoteTraceback", "TaskDied", "TaskExpired", "TaskTimedOut", "serve"]

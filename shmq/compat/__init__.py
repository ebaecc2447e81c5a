"""
`multiprocessing`'s queues, on shmq: Queue, JoinableQueue and SimpleQueue as a drop-in, of no start method.

    from shmq.compat import Queue              instead of: from multiprocessing import Queue

A map: queues.py has the three; packing.py how an object becomes a payload; blame.py which part cannot be pickled.
"""

from shmq.compat.queues import JoinableQueue, Queue, SimpleQueue

__all__ = ["JoinableQueue", "Queue", "SimpleQueue"]

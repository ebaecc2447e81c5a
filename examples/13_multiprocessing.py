"""
multiprocessing.Queue with another import: a kill blocks nobody, an error is told where it is made, buffers are fast.

Prints:
    200 squares, though one worker was killed
    TypeError: msg["when"] cannot be pickled: _thread.lock
    a buffer of one's own: 1000000 bytes
"""

import multiprocessing
import threading

from shmq.compat import JoinableQueue, Queue


def square(tasks, results):
    for number in iter(tasks.get, None):
        results.put(number * number)
        tasks.task_done()


if __name__ == "__main__":
    tasks, results = JoinableQueue(), Queue()
    workers = [multiprocessing.Process(target=square, args=(tasks, results)) for _ in range(3)]
    for each in workers:
        each.start()
    workers[0].kill()  # while it waits: nobody notices
    workers.pop(0).join()
    for number in range(200):
        tasks.put(number)
    tasks.join()
    print(results.qsize(), "squares, though one worker was killed")
    for _ in workers:
        tasks.put(None)
    try:
        results.put({"when": threading.Lock()})
    except TypeError as problem:
        print(f"TypeError: {problem.__notes__[0]}")

    results.put(bytearray(1_000_000))  # arrays likewise: copied once by put, and once by get
    while not isinstance(mine := results.get(), bytearray):
        pass
    mine[0] = 1
    print("a buffer of one's own:", len(mine), "bytes")

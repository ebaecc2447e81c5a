"""
What kill -9 costs: a producer puts 100,000 items, every put() returns, and a second later it is killed.

multiprocessing.Queue keeps what was put in the memory of the process that put it, and a thread there moves it into a
pipe: what has not left when the process dies is gone, and nobody is told. What remains is what fits into a pipe (64 KiB
unless somebody changed it). A put of shmq is in the queue when it returns.

Prints:
    multiprocessing.Queue: 100,000 put, producer killed, 64 left: 99,936 lost
    shmq: 100,000 put, producer killed, 100,000 left: 0 lost
"""

import multiprocessing
import os
import queue
import signal
import time

import shmq

ITEMS = 100_000
ITEM = bytes(1000)


def put_and_die(any_queue):
    for _ in range(ITEMS):
        any_queue.put(ITEM)
    time.sleep(1)  # every put() has returned; what has not left by now waits for somebody to read
    os.kill(os.getpid(), signal.SIGKILL)


def put_in_a_process_that_is_killed(any_queue):
    process = multiprocessing.Process(target=put_and_die, args=(any_queue,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def count(get):
    """How many there are, until none comes for a second."""
    left = 0
    try:
        while get(timeout=1.0) == ITEM:
            left += 1
    except queue.Empty:  # shmq.Empty is one of these
        return left


def say(name, left):
    print(f"{name}: {ITEMS:,} put, producer killed, {left:,} left: {ITEMS - left:,} lost")


if __name__ == "__main__":
    theirs = multiprocessing.Queue()
    put_in_a_process_that_is_killed(theirs)
    say("multiprocessing.Queue", count(theirs.get))

    with shmq.open("survivor") as ours, ours.consumer("heir") as heir:
        put_in_a_process_that_is_killed(ours)
        say("shmq", count(heir.take))
    shmq.delete("survivor")

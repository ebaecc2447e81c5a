"""
A flow: stages of worker processes with durable queues between them. What is killed goes on where it was.

One item kills the worker that has it, once; and the source breaks in the middle. Each square is there once, in order.

Prints:
    the source broke: no more for now
    1000 items, 0 given up
    999 squares, in order: True
"""

import os
import signal
from pathlib import Path

import shmq

KILLED = Path("killed")


def square(number):
    if number == 300 and not KILLED.exists():
        KILLED.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def check(number):
    return number or None  # None: nothing goes on


def source(break_at=None):
    for number in range(1000):
        if number == break_at:
            raise RuntimeError("no more for now")
        yield number


if __name__ == "__main__":
    squares = shmq.open("squares", codec="msgpack")
    flow = shmq.Flow("flow").stage(square, workers=2, ordered=True).stage(check).sink(squares)
    try:
        flow.run(source(break_at=600), progress=False)
    except RuntimeError as problem:
        print("the source broke:", problem)
    summary = flow.run(source(), progress=False)  # skips what was put
    print(summary.items, "items,", summary.dead, "given up")
    found = [message.payload for message in squares.reader()]
    print(len(found), "squares, in order:", found == [n * n for n in range(1, 1000)])
    squares.close()
    KILLED.unlink()
    flow.delete()
    shmq.delete("squares")

"""
Explicit acknowledgements: a message that was not finished when its worker died comes again.

The worker is killed (kill -9) while it works on an order. The next worker of that name is handed everything that was
not acknowledged, and sees by `attempts` that somebody may have begun it.

Prints:
    first worker: shipped order 0
    first worker: shipped order 1
    first worker: working on order 2 ... killed
    second worker: order 2, attempt 2
    second worker: order 3, attempt 1
    second worker: order 4, attempt 1
    lag 0
"""

import multiprocessing
import os
import signal
import sys

import shmq


def worker(queue):
    consumer = queue.consumer("shipping", ack="explicit")
    for message in consumer:
        if message.payload == "order 2":
            print(f"first worker: working on {message.payload} ... killed")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"first worker: shipped {message.payload}")
        message.ack()  # only now it is finished


if __name__ == "__main__":
    with shmq.open("shipments", codec="text") as queue:
        queue.put_many([f"order {number}" for number in range(5)])

        process = multiprocessing.get_context("spawn").Process(target=worker, args=(queue,))
        process.start()
        process.join()

        with queue.consumer("shipping", ack="explicit") as consumer:  # the dead one's name is free at once
            for message in consumer.get_many(10):
                print(f"second worker: {message.payload}, attempt {message.attempts}")
                message.ack()
            print("lag", consumer.lag)
    shmq.delete("shipments")

"""
A durable restart: with durability="sync" a put is on the disk when it returns, and a name goes on where it stopped.

The program is run three times here, and killed (kill -9) twice. Each run puts where the last one stopped, by asking the
queue, and takes what is not acknowledged yet.

Prints:
    run 1 found 0 messages and did [0, 1, 2]
    run 2 found 4 messages and did [3, 4, 5, 6, 7]
    run 3 found 8 messages and did [8, 9]
    10 messages, each done once
"""

import multiprocessing
import os
import signal

import shmq


def program(run):
    with shmq.open("journal", codec="msgpack", durability="sync", retention="forever") as queue:
        found, done = len(queue), []
        for number in range(found, min(found + 4, 10)):
            queue.put(number)  # on the disk when it returns: not even a power cut takes it
        with queue.consumer("work", ack="explicit") as work:
            for message in work.get_many(10):
                if run == 1 and message.payload == 3:
                    break  # killed below, with this one in hand: it comes again
                done.append(message.payload)
                message.ack()
            print(f"run {run} found {found} messages and did {done}", flush=True)
            if run < 3:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    for run in (1, 2, 3):
        process = multiprocessing.get_context("spawn").Process(target=program, args=(run,))
        process.start()
        process.join()
    with shmq.open("journal") as queue:
        assert queue.consumers()["work"].lag == 0
        print(f"{len(queue)} messages, each done once")
    shmq.delete("journal")

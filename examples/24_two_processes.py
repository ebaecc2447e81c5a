"""
Two processes: one puts, one takes, and neither is a server. Each opens the same directory.

Prints:
    the child took 1,000 readings, which add up to 499,500
    both are gone, and the queue is there: 1,000 messages
"""

import multiprocessing

import shmq


def take_all():
    with shmq.open("readings", codec="msgpack") as queue, queue.consumer("sum") as consumer:
        taken = [message.payload for message in consumer]  # ends when the queue is finished and drained
    print(f"the child took {len(taken):,} readings, which add up to {sum(taken):,}", flush=True)


if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=take_all)
    child.start()
    with shmq.open("readings", codec="msgpack") as queue:  # whoever comes first makes it
        for number in range(1000):
            queue.put(number)
        queue.finish()
    child.join()
    with shmq.open("readings") as queue:
        print(f"both are gone, and the queue is there: {len(queue):,} messages")
    shmq.delete("readings")

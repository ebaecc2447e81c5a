"""
A pipeline of processes: read -> square -> add up, with a queue between the stages and two workers that square.

The workers of a stage are a group: each message goes to one of them. What one has not acknowledged goes to the others
if it dies, so it acknowledges when its result is in the next queue. A queue is finished by whoever knows that all who
put into it are done: that is not the first worker who ends, but who waits for all of them.

Prints:
    read: 10,000 numbers
    square: 10,000 squares by 2 workers
    add up: 333,283,335,000
"""

import multiprocessing

import shmq

NUMBERS, WORKERS = 10_000, 2


def read(numbers):
    for first in range(0, NUMBERS, 1000):
        numbers.put_many(range(first, first + 1000))
    numbers.finish()  # the only one who puts there: those who take drain it, and then their loops end
    return f"read: {NUMBERS:,} numbers"


def square(numbers, squares):
    count = 0
    with numbers.consumer("square", group=True, ack="explicit") as consumer:
        for message in consumer:
            squares.put(message.payload**2)
            message.ack()  # only now: the result is in the next queue
            count += 1
    return count


def add_up(squares):
    with squares.consumer("add-up") as consumer:
        return f"add up: {sum(message.payload for message in consumer):,}"


if __name__ == "__main__":
    numbers, squares = shmq.open("numbers", codec="msgpack"), shmq.open("squares", codec="msgpack")
    # A queue crosses to any kind of process: it pickles to its path.
    with multiprocessing.get_context("spawn").Pool(2 + WORKERS) as pool:
        reading, adding = pool.apply_async(read, (numbers,)), pool.apply_async(add_up, (squares,))
        squaring = [pool.apply_async(square, (numbers, squares)) for _ in range(WORKERS)]
        print(reading.get(timeout=60))
        print(f"square: {sum(worker.get(timeout=60) for worker in squaring):,} squares by {WORKERS} workers")
        squares.finish()  # all who put there have ended
        print(adding.get(timeout=60))
    for queue in (numbers, squares):
        queue.close()
        shmq.delete(queue.path)

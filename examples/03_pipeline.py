"""
A pipeline of processes: read -> square -> add up, with a queue between the stages.

Each stage is a process with a name of its own in the queue before it. When a stage has put everything, it shuts its
queue down: the next one drains it, and then its loop ends by itself.

Prints:
    read: 10,000 numbers
    square: 10,000 squares
    add up: 333,283,335,000
"""

import multiprocessing

import shmq

NUMBERS = 10_000


def read(numbers):
    with numbers.producer() as producer:
        for number in range(NUMBERS):
            producer.put(number)
    numbers.shutdown()
    return f"read: {NUMBERS:,} numbers"


def square(numbers, squares):
    count = 0
    with numbers.consumer("square") as consumer:
        for message in consumer:  # ends when numbers is shut down and drained
            squares.put(message.payload**2)
            count += 1
    squares.shutdown()
    return f"square: {count:,} squares"


def add_up(squares):
    with squares.consumer("add-up") as consumer:
        return f"add up: {sum(message.payload for message in consumer):,}"


if __name__ == "__main__":
    numbers = shmq.open("numbers", options=shmq.Options(codec="msgpack"))
    squares = shmq.open("squares", options=shmq.Options(codec="msgpack"))
    context = multiprocessing.get_context("spawn")  # a queue crosses to any kind of process: it pickles to its path
    with context.Pool(3) as pool:
        stages = [(read, (numbers,)), (square, (numbers, squares)), (add_up, (squares,))]
        for result in [pool.apply_async(stage, arguments) for stage, arguments in stages]:
            print(result.get(timeout=60))

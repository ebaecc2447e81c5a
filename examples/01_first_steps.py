"""
First steps: a queue is a directory. Put, take, look, come back later.

Prints:
    index 0
    indexes 1 to 3
    b'hello'
    [b'one', b'two', b'three']
    nothing more
    audit begins at the beginning: b'hello'
    message 2 is b'two'
    4 messages, billing is 0 behind and audit 3
"""

import shmq

with shmq.open("orders") as queue:  # made if absent; opening it again needs no options
    index = queue.put(b"hello")  # committed when it returns: even kill -9 does not lose it
    print("index", index)

    indexes = queue.put_many([b"one", b"two", b"three"])  # all of them become visible at once, or none
    print("indexes", indexes[0], "to", indexes[-1])

    with queue.consumer("billing") as billing:  # a name with a checkpoint: it goes on where it stopped
        print(billing.take())
        print(billing.take_many(100))
        try:
            billing.take(timeout=0.01)
        except shmq.Empty:
            print("nothing more")

# Any other process can open the same directory, now or next week.
with shmq.open("orders", create=False) as queue:
    with queue.consumer("audit") as audit:  # another name sees every message too
        print("audit begins at the beginning:", audit.take())

    print("message 2 is", queue[2].payload)  # by index; changes nothing for any consumer

    lags = {name: consumer.lag for name, consumer in queue.consumers().items()}
    print(f"{len(queue)} messages, billing is {lags['billing']} behind and audit {lags['audit']}")

shmq.delete("orders")  # the directory, with everything in it; without this line it is there next week

"""
Bounds: a queue that holds at most so many messages makes its producers wait for its slowest consumer.

What a put does at the bound is up to the queue: "block" waits (for `timeout` seconds, if it is given), "raise" raises
Full at once, and "drop_oldest" drops what nobody has begun. Every name counts from where its own head is.

Prints:
    3 put; the 4th: Full
    one was taken, and there is room again
    the newest 3 of 10: [7, 8, 9], and 7 were dropped
"""

import shmq

with shmq.open("jobs", codec="msgpack", max_messages=3) as queue, queue.consumer("worker") as worker:
    queue.put_many([1, 2, 3])
    try:
        queue.put(4, timeout=0.1)  # without a timeout it waits until there is room
    except shmq.Full as full:
        print(f"3 put; the 4th: {type(full).__name__}")
    worker.take()
    queue.put(4)
    print("one was taken, and there is room again")

options = shmq.Options(codec="msgpack", max_messages=3, full="drop_oldest")  # the same as keywords, to be passed around
with shmq.open("latest", options=options) as queue, queue.consumer("screen") as screen:
    for number in range(10):
        queue.put(number)
    newest = screen.take_many(10)
    print(f"the newest 3 of 10: {newest}, and {queue.consumers()['screen'].dropped} were dropped")

shmq.delete("jobs")
shmq.delete("latest")

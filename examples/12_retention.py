"""
Retention: how long messages stay. Whole chunk files go at a time, the oldest first.

"acked", the default, keeps a message until every consumer name has finished it. "forever" makes a journal, which can be
read again by index and by time. Retention.age(seconds) and Retention.bytes(n) let messages go whoever has seen them; a
name that was left behind is told so once.

Prints:
    acked: 1 chunk file is left when all have finished
    forever: 2,000 messages are still there, from hour 3 on 500
    bytes: the oldest have gone, and the slow one is told: Gone
    it goes on with the oldest there is: True
"""

import shmq

SMALL = 64 << 10  # chunk files are 64 MiB when they are full-grown; small ones show sooner how they go
HOUR_NS = 3_600_000_000_000


def fill(queue):
    for first in range(0, 2000, 100):
        queue.put_many([bytes(200)] * 100, times_ns=[number // 500 * HOUR_NS for number in range(first, first + 100)])


with shmq.open("acked", chunk_bytes=SMALL) as queue, queue.consumer("worker") as worker:
    fill(queue)
    for _ in range(2000):
        worker.take()
    print(f"acked: {queue.stats().chunks} chunk file is left when all have finished")

with shmq.open("journal", chunk_bytes=SMALL, retention="forever") as queue, queue.consumer("worker") as worker:
    fill(queue)
    worker.seek("latest")
    print(f"forever: {len(queue):,} messages are still there, from hour 3 on {len(queue) - queue.at_ns(3 * HOUR_NS)}")

window = shmq.Retention.bytes(4 * SMALL)
with shmq.open("window", chunk_bytes=SMALL, retention=window) as queue, queue.consumer("slow") as slow:
    fill(queue)
    try:
        slow.take()
    except shmq.Gone as gone:
        print(f"bytes: the oldest have gone, and the slow one is told: {type(gone).__name__}")
    print("it goes on with the oldest there is:", slow.get().index == queue.first_index)

for name in ("acked", "journal", "window"):
    shmq.delete(name)

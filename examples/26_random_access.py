"""
Random access and time: any message by its index, forward, backward, or from a moment on. No consumer notices.

Prints:
    message 1234: reading 1234
    the last: reading 7999
    from noon on: 4,000 messages, the first is reading 4000
    the last three, backward: reading 7999, reading 7998, reading 7997
    between eleven and noon: 333
"""

import datetime
import itertools

import shmq

MIDNIGHT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
START_NS = int(MIDNIGHT.timestamp()) * 1_000_000_000
STEP_NS = 10_800_000_000  # 8,000 readings in a day


def clock(hour):
    """The nanoseconds of that hour."""
    return START_NS + hour * 3_600_000_000_000


with shmq.open("readings", codec="text", retention="forever") as queue:
    numbers = range(8000)
    queue.put_many([f"reading {n}" for n in numbers], times_ns=[START_NS + n * STEP_NS for n in numbers])

    print("message 1234:", queue[1234].payload)
    print("the last:", queue[-1].payload)

    noon = queue.at_ns(clock(12))  # the index of the first message from then on
    print(f"from noon on: {len(queue) - noon:,} messages, the first is {queue[noon].payload}")
    backward = (queue[index].payload for index in range(len(queue) - 1, -1, -1))
    print("the last three, backward:", ", ".join(itertools.islice(backward, 3)))
    print("between eleven and noon:", noon - queue.at_ns(clock(11)))
shmq.delete("readings")

"""
Fan-out by names: every consumer name sees every message, each at its own pace.

Three processes read the same stream under three names. None of them takes anything away from the others, and one that
comes late begins at the beginning, or at the end if it asks for that.

Prints:
    count: 1,000 readings
    highest: 99.9 degrees
    alarms: 100 above 90
    latecomer: nothing older than itself, then 'late reading'
"""

import multiprocessing

import shmq


def count(readings):
    return f"count: {sum(1 for _ in readings):,} readings"


def highest(readings):
    return f"highest: {max(message.payload['degrees'] for message in readings)} degrees"


def alarms(readings):
    return f"alarms: {sum(message.payload['degrees'] >= 90 for message in readings)} above 90"


def follow(queue, job):
    with queue.consumer(job.__name__) as readings:  # the name is the subscription
        return job(readings)


if __name__ == "__main__":
    queue = shmq.open("readings", codec="json")
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        results = [pool.apply_async(follow, (queue, job)) for job in (count, highest, alarms)]
        queue.put_many([{"degrees": number / 10} for number in range(1000)])
        queue.shutdown()  # when they have seen everything, their loops end
        for result in results:
            print(result.get(timeout=60))
    queue.close()  # the last one out: the shutdown ends with it

    with shmq.open("readings", codec="json") as queue, queue.consumer("latecomer", start="latest") as latecomer:
        queue.put("late reading")
        print(f"latecomer: nothing older than itself, then {latecomer.take()!r}")
    shmq.delete("readings")

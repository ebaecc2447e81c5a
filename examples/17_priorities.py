"""
Priorities: what is urgent is done first, and what is not is done too.

A hundred reports wait when an order comes in; a worker finds the order first. With orders that never end, every
seventeenth message or so is a report.

Prints:
    first: order 0
    of 100 messages 5 were reports
"""

import shmq


def main():
    with shmq.priorities.open("jobs", levels=2, codec="text") as jobs:
        jobs.put_many([f"report {n}" for n in range(100)], priority=1)
        jobs.put("order 0")
        with jobs.consumer("workers", ack="explicit") as workers:  # a group: any number of processes share it
            message = workers.get()
            print("first:", message.payload)
            message.ack()
            jobs.put_many([f"order {n}" for n in range(1, 200)])
            done = []
            for message in workers:
                message.ack()
                done.append(message.payload)
                if len(done) == 100:
                    break
            print("of", len(done), "messages", sum(each.startswith("report") for each in done), "were reports")


if __name__ == "__main__":
    main()
    shmq.priorities.delete("jobs")

"""
Shards: what has one key comes in order, while two workers share the rest, and while there come to be more shards.

Prints:
    8 shards now
    each customer's orders came in order: True
"""

import collections
import multiprocessing

import shmq


def work(events, log):
    with events.consumer("billing", group=True) as c:  # of four shards each worker has two; of eight, four
        for message in c:
            log.put(message.payload, key=message.key)
            message.ack()


def main():
    with shmq.shards.open("events", shards=4, codec="json") as events, shmq.open("log", codec="json") as log:
        workers = [multiprocessing.Process(target=work, args=(events, log)) for _ in range(2)]
        for each in workers:
            each.start()
        for number in range(100):
            events.put(number, key=b"customer %d" % (number % 7))
            if number == 50:
                print(events.grow(), "shards now")
        events.finish()
        for each in workers:
            each.join()
        orders = collections.defaultdict(list)
        for message in log.reader():
            orders[message.key].append(message.payload)
        in_order = all(each == list(range(each[0], 100, 7)) for each in orders.values())
        print("each customer's orders came in order:", in_order and len(orders) == 7)


if __name__ == "__main__":
    main()
    shmq.shards.delete("events")
    shmq.delete("log")

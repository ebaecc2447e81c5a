"""
Groups: any number of processes share one name, and every message goes to one of them.

With ordered_by="key" the messages of one key come in order and one at a time, whoever works on them; other keys do not
wait. Workers may come and go while it runs.

Prints:
    3 workers shipped 300 orders
    each customer's orders were shipped in order: True
"""

import multiprocessing

import shmq

ORDERS, WORKERS = 300, 3
CUSTOMERS = [b"ann", b"bob", b"cem", b"dot", b"eve"]


def ship(orders, shipped):
    count = 0
    with orders.consumer("shipping", group=True, ack="explicit", ordered_by="key") as consumer:
        for order in consumer:
            shipped.put(order.payload, key=order.key)
            order.ack()  # from now on the next one of this customer may be handed out, to any worker
            count += 1
    return count


if __name__ == "__main__":
    orders, shipped = shmq.open("orders", codec="msgpack"), shmq.open("shipped", codec="msgpack")
    orders.put_many(range(ORDERS), keys=[CUSTOMERS[number % 5] for number in range(ORDERS)])
    orders.finish()  # no more will come: the workers' loops end when all are shipped
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        workers = [pool.apply_async(ship, (orders, shipped)) for _ in range(WORKERS)]
        print(f"{WORKERS} workers shipped {sum(worker.get(timeout=60) for worker in workers)} orders")
    for_each = [[each.payload for each in shipped.reader() if each.key == customer] for customer in CUSTOMERS]
    print("each customer's orders were shipped in order:", all(numbers == sorted(numbers) for numbers in for_each))
    for queue in (orders, shipped):
        queue.close()
        shmq.delete(queue.path)

"""
Objects instead of bytes: msgpack, with keys, types, times and headers.

The codec is stored in the queue, so whoever opens it gets objects. It is msgpack, json, text or bytes; pickle only when
both sides say trusted=True, since reading a pickle runs code. What would come back as something else is refused.

Prints:
    0 order eu 2026-01-01 {'id': 1, 'items': ['tea', 'cup'], 'paid': True}
    1 order us 2026-01-02 {'id': 2, 'items': [], 'paid': False}
    2 cancel us 2026-01-03 {'id': 2}
    traced by 00-4bf92f35
    us: [1, 2]
    cannot open shop with codec='json': it was made with codec='msgpack'
"""

import datetime

import shmq

ORDER, CANCEL = 1, 2
KINDS = {ORDER: "order", CANCEL: "cancel"}


def at(day):
    """The nanoseconds of a day of January 2026; times are the user's, and need not ascend."""
    return int(datetime.datetime(2026, 1, day, tzinfo=datetime.UTC).timestamp()) * 1_000_000_000


with shmq.open("shop", codec="msgpack") as queue:
    queue.put({"id": 1, "items": ["tea", "cup"], "paid": True}, key=b"eu", type=ORDER, time_ns=at(1))
    queue.put({"id": 2, "items": [], "paid": False}, key=b"us", type=ORDER, time_ns=at(2))
    queue.put({"id": 2}, key=b"us", type=CANCEL, time_ns=at(3), headers={"trace": "00-4bf92f35"})

with shmq.open("shop") as queue:
    for message in queue.reader():
        print(message.index, KINDS[message.type], message.key.decode(), message.time.date(), message.payload)
    print("traced by", queue[-1].headers["trace"])
    print("us:", [message.index for message in queue.reader() if message.key == b"us"])

try:
    shmq.open("shop", codec="json")
except shmq.Mismatch as problem:
    print(str(problem).replace(queue.path, "shop").partition(";")[0])
shmq.delete("shop")

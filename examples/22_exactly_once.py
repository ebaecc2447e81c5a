"""
Exactly once: from a database into a queue, into another queue, and into a database again.

Each step may be killed anywhere: nothing is lost, and nothing is there twice. tests/forward kills them by the thousand.

Prints:
    put: ['paid 1', 'paid 2', 'paid 3']
    passed on: ['paid 1!', 'paid 2!', 'paid 3!']
    stored: [(0, 'paid 1!'), (1, 'paid 2!'), (2, 'paid 3!')]
"""

import os
import sqlite3

import shmq


def relay(database, queue):
    """An outbox: what the program's transactions left is put, in its order, and deleted."""
    for seq, payload in database.execute("SELECT seq, payload FROM outbox ORDER BY seq").fetchall():
        queue.put(payload, dedup=("shop", seq))  # killed behind this, it is put again, which puts nothing
        with database:
            database.execute("DELETE FROM outbox WHERE seq = ?", (seq,))


def store(database, consumer, message):
    """An inbox: what is done and that it was done, in one transaction."""
    seen = consumer.incarnation.hex(), message.index
    with database:
        if database.execute("INSERT OR IGNORE INTO inbox VALUES(?, ?)", seen).rowcount:
            database.execute("INSERT INTO orders VALUES(?, ?)", (message.index, message.payload))
    message.ack()  # killed before this, it comes again, and is in the inbox


database = sqlite3.connect("shop.db")
database.execute("CREATE TABLE outbox(seq INTEGER PRIMARY KEY AUTOINCREMENT, payload TEXT)")  # no number comes again
database.execute("CREATE TABLE inbox(source TEXT, idx INTEGER, PRIMARY KEY(source, idx))")
database.execute("CREATE TABLE orders(idx INTEGER, what TEXT)")
with database:  # a transaction of the program's own
    database.executemany("INSERT INTO outbox(payload) VALUES(?)", [(f"paid {n}",) for n in range(1, 4)])
with shmq.open("payments", codec="text") as payments, shmq.open("books", codec="text") as books:
    relay(database, payments)
    print("put:", [message.payload for message in payments.reader()])
    with payments.consumer("workers", group=True, ack="explicit") as workers:
        for message in workers.get_many(3):
            with message.forward() as f:  # all of it and the acknowledgement, or it comes again
                f.put(books, message.payload + "!")
    print("passed on:", [message.payload for message in books.reader()])
    with books.consumer("keeper", group=True, ack="explicit") as keeper:
        for message in keeper.get_many(3):
            store(database, keeper, message)
    print("stored:", database.execute("SELECT * FROM orders ORDER BY idx").fetchall())
database.close()
os.unlink("shop.db")
shmq.delete("payments")
shmq.delete("books")

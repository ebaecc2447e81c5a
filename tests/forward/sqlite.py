"""
An outbox and an inbox in SQLite, as docs/how-to/exactly-once.md has them, killed over and over.

    python -m tests.forward.sqlite --kills 1000

A program commits numbers to the outbox of a database; relays put them into a queue; others store what comes from that
queue into a table of a second database. Each is killed at any moment. At the end every committed number is there once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time

import shmq
from tests.support import start

WAIT = 30.0


def relay_once(database: sqlite3.Connection, queue: shmq.Queue) -> None:
    """Put what is in the outbox, in its order, and delete it."""
    (identity,) = database.execute("SELECT id FROM about").fetchone()
    for seq, payload in database.execute("SELECT seq, payload FROM outbox ORDER BY seq").fetchall():
        queue.put(payload, dedup=(identity, seq))
        with database:
            database.execute("DELETE FROM outbox WHERE seq = ?", (seq,))


def store_once(database: sqlite3.Connection, consumer: shmq.GroupConsumer, message: shmq.Message) -> None:
    """What is done, and that it was done, in one transaction."""
    seen = consumer.incarnation.hex(), message.index
    with database:
        if database.execute("INSERT OR IGNORE INTO inbox VALUES(?, ?)", seen).rowcount:
            database.execute("INSERT INTO orders VALUES(?, ?)", (message.index, message.payload))
    message.ack()


def prune(database: sqlite3.Connection, queue: shmq.Queue, consumer: shmq.GroupConsumer) -> None:
    """What is finished for good never comes again."""
    source, floor = consumer.incarnation.hex(), consumer.floor
    queue.sync()
    with database:
        database.execute("DELETE FROM inbox WHERE source = ? AND idx < ?", (source, floor))


def connect(root: str, name: str) -> sqlite3.Connection:
    """A database that several processes write."""
    database = sqlite3.connect(f"{root}/{name}.db", timeout=WAIT)
    database.execute("PRAGMA synchronous = OFF")  # what is looked at is kills
    return database


def write(root: str) -> None:
    """The program: transactions of its own, with what is to be sent."""
    with contextlib.closing(connect(root, "out")) as database:
        for _ in range(100):
            with database:
                database.execute("INSERT INTO outbox(payload) VALUES((SELECT ifnull(max(n), 0) + 1 FROM counted))")
                database.execute("INSERT INTO counted SELECT ifnull(max(n), 0) + 1 FROM counted")
            time.sleep(0.0005)


def relay(root: str) -> None:
    """One relay."""
    with contextlib.closing(connect(root, "out")) as database, shmq.open(f"{root}/q") as queue:
        for _ in range(20):
            relay_once(database, queue)
            time.sleep(0.001)


def store(root: str) -> None:
    """One that stores."""
    with (
        contextlib.closing(connect(root, "in")) as database,
        shmq.open(f"{root}/q") as queue,
        queue.consumer("books", group=True) as books,
        contextlib.suppress(shmq.Empty),
    ):
        while True:
            store_once(database, books, message := books.get(timeout=0.05))
            if message.index % 20 == 0:
                prune(database, queue, books)


def run(seed: int, kills: int) -> list[str]:
    """What is wrong after so many kills."""
    rng = random.Random(seed)
    root = tempfile.mkdtemp(prefix="shmq-sqlite-")
    with contextlib.closing(connect(root, "out")) as out, contextlib.closing(connect(root, "in")) as into:
        with out:
            out.execute("CREATE TABLE outbox(seq INTEGER PRIMARY KEY AUTOINCREMENT, payload TEXT)")
            out.execute("CREATE TABLE about(id TEXT)")
            out.execute("INSERT INTO about VALUES('shop')")
            out.execute("CREATE TABLE counted(n INTEGER)")
        with into:
            into.execute("CREATE TABLE inbox(source TEXT, idx INTEGER, PRIMARY KEY(source, idx))")
            into.execute("CREATE TABLE orders(idx INTEGER, what TEXT)")
    with shmq.open(f"{root}/q", codec="text") as queue:
        queue.consumer("books", group=True, ack="explicit", window=64).close()
    running: list[int] = []
    for _ in range(kills):
        while len(running) < 3:
            running.append(start(rng.choice((write, relay, relay, store, store)), root))
        time.sleep(rng.random() * 0.03)
        pid = running.pop(rng.randrange(len(running)))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    for last in (relay, store):
        assert os.waitstatus_to_exitcode(os.waitpid(start(last, root), 0)[1]) == 0
    with contextlib.closing(connect(root, "out")) as out, contextlib.closing(connect(root, "in")) as into:
        committed = [str(n) for (n,) in out.execute("SELECT n FROM counted ORDER BY n")]
        left = out.execute("SELECT count(*) FROM outbox").fetchone()
        there = [what for (what,) in into.execute("SELECT what FROM orders ORDER BY idx")]
    wrong = []
    if left != (0,):
        wrong.append(f"{left[0]} are left in the outbox")
    if there != committed:
        wrong.append(
            f"{len(committed)} were committed, and {len(there)} came: {sorted(set(committed) ^ set(there))[:10]}"
        )
    if wrong:
        wrong.append(f"its files: {root}")
    else:
        shutil.rmtree(root)
    return wrong


def main() -> int:
    """As many kills as asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    wrong = run(seed, arguments.kills)
    if wrong:
        print("FOUND", *wrong, sep="\n  ")
        print(f"repeat with: python -m tests.forward.sqlite --kills {arguments.kills} --seed {seed}")
    print(f"{arguments.kills:,} kills of an outbox and an inbox; {int(bool(wrong))} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

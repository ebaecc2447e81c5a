"""
Two bridges and a server between two queues, of which one is killed every now and then; what came out is held against
what went in. Nothing may be lost, come twice, or in another order.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time

import brokers

import shmq

KINDS = {"redis": brokers.Redis, "valkey": brokers.Valkey, "nats": brokers.Nats}
AFTER = 120.0
"""Seconds in which the rest has to arrive when nobody is killed any more."""


class Producer(threading.Thread):
    """Puts messages of all kinds into a queue, until it is told to end."""

    def __init__(
        self, path: str, seed: int, bursts: tuple[int, ...] = (1, 1, 10, 100), *, one_key: bool = False
    ) -> None:
        super().__init__()
        self._one_key = one_key
        self._bursts = bursts
        self._path = path
        self._random = random.Random(seed)
        self._ends = threading.Event()
        self.count = 0

    def run(self) -> None:
        with shmq.open(self._path) as queue:
            while not self._ends.wait(self._random.uniform(0, 0.02)):
                for _ in range(self._random.choice(self._bursts)):
                    self._put(queue)

    def _put(self, queue) -> None:
        number = self.count
        headers = self._random.choice((None, {"plain": "text"}, {"n": number, "odd name": " x "}))
        key = self._random.choice((None, b"k", bytes([255, number % 256])))
        queue.put(b"%d" % number, key=b"k" if self._one_key else key, type=number % 5, headers=headers)
        self.count += 1

    def end(self) -> int:
        self._ends.set()
        self.join()
        return self.count


def read(path: str) -> list[tuple]:
    with shmq.open(path, create=False) as queue:
        return [(bytes(m.view), m.key, m.type, m.time_ns, m.headers) for m in queue.reader()]


def kill_either(kind: str, *, kills: int, seed: int, pause: float = 0.8) -> dict[str, int]:
    """So many kills of bridges and of a server of that kind; how often whom, and how many messages went through."""
    with tempfile.TemporaryDirectory(prefix="shmq-bridge-") as folder, KINDS[kind](folder) as server:
        return kill(server.url("stream"), server, kills=kills, seed=seed, pause=pause)


def kill(url: str, server: brokers.Server, *, kills: int, seed: int, pause: float) -> dict[str, int]:
    """The same with a server that runs."""
    drawn = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="shmq-bridge-") as folder:
        a, b = f"{folder}/a", f"{folder}/b"
        shmq.open(b, retention="forever").close()
        shmq.open(a, retention="forever").close()
        producer = Producer(a, seed)
        producer.start()
        try:
            with brokers.Bridge(f"{folder}/out.log", a, url, "--trail", 60) as out:
                wait_for_stream(a, url, out)
                with brokers.Bridge(f"{folder}/in.log", url, b) as back:
                    those = {"out": out, "in": back, "server": server}
                    done = dict.fromkeys(those, 0)
                    for _ in range(kills):
                        time.sleep(drawn.uniform(0, pause))
                        whom = drawn.choice(list(those))
                        those[whom].kill()
                        time.sleep(drawn.choice((0, 0, 0.2)))
                        those[whom].start()
                        done[whom] += 1
                    total = producer.end()
                    with shmq.open(b) as queue:
                        brokers.eventually(lambda: len(queue) >= total, back, AFTER)
                    time.sleep(0.3)  # for what would come twice
                    assert out.end() == back.end() == 0, out.said() + back.said()
        finally:
            producer.end()
        compare(read(a), read(b), f"{url}, seed {seed}")
    return done | {"messages": total}


def kill_at_the_door(*, kills: int, seed: int, pause: float = 0.8) -> dict[str, int]:
    """
    The same by way of a POSIX message queue, which has no numbers: a kill of the way out may double one message, one of
    the way in may lose one, and no more.
    """
    import posix_ipc

    drawn = random.Random(seed)
    name = f"/shmq-test-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="shmq-bridge-") as folder:
        a, b = f"{folder}/a", f"{folder}/b"
        shmq.open(b, retention="forever").close()
        shmq.open(a, retention="forever").close()
        door = posix_ipc.MessageQueue(name, posix_ipc.O_CREX)
        producer = Producer(a, seed, (1, 5))
        producer.start()
        try:
            with (
                brokers.Bridge(f"{folder}/out.log", a, f"mq:{name}") as out,
                brokers.Bridge(f"{folder}/in.log", f"mq:{name}", b) as back,
            ):
                those = {"out": out, "in": back}
                done = dict.fromkeys(those, 0)
                for _ in range(kills):
                    time.sleep(drawn.uniform(0.3, 0.3 + pause))
                    whom = drawn.choice(list(those))
                    those[whom].kill()
                    those[whom].start()
                    done[whom] += 1
                total = producer.end()
                brokers.eventually(lambda: sent(a) == total, out, AFTER)
                brokers.eventually(lambda: door.current_messages == 0, back, AFTER)
                time.sleep(0.3)
                assert out.end() == back.end() == 0, out.said() + back.said()
        finally:
            producer.end()
            door.close()
            door.unlink()
        numbers = [int(each[0]) for each in read(b)]
    lost, doubled = total - len(set(numbers)), len(numbers) - len(set(numbers))
    assert lost <= done["in"], f"{lost} lost by {done['in']} kills of the way in"
    assert doubled <= done["out"], f"{doubled} doubled by {done['out']} kills of the way out"
    return done | {"lost": lost, "doubled": doubled, "messages": total}


def sent(path: str) -> int:
    """The index behind what a bridge has sent."""
    with shmq.open(path) as queue:
        return max((each.head for name, each in queue.consumers().items() if name.endswith(".sent")), default=0)


def wait_for_stream(queue: str, url: str, out: brokers.Bridge) -> None:
    """Until the bridge has sent something."""

    brokers.eventually(lambda: sent(queue), out)


def compare(went_in: list[tuple], came_out: list[tuple], which: str) -> None:
    """Assert that they are the same."""
    if went_in == came_out:
        return
    numbers = [int(each[0]) for each in came_out]
    lost = sorted(set(range(len(went_in))) - set(numbers))
    doubled = sorted({each for each in numbers if numbers.count(each) > 1}) if len(numbers) < 20_000 else "?"
    at = next((i for i, (x, y) in enumerate(zip(went_in, came_out, strict=False)) if x != y), len(came_out))
    raise AssertionError(
        f"{which}: {len(went_in)} went in and {len(came_out)} came out: lost {lost[:10]}, doubled {doubled[:10]}; "
        f"the first difference is at {at}: {went_in[at : at + 1]} and {came_out[at : at + 1]} [{os.getpid()}]"
    )

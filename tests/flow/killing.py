"""Workers of a flow that are killed at random, and what comes out held against what went in."""

from __future__ import annotations

import os
import random
import signal
import threading

import stages

import shmq


class Killer(threading.Thread):
    """Kills one of this process's descendants that work for the flow, now and then."""

    def __init__(self, kills: int, seed: int, most: float) -> None:
        super().__init__(daemon=True)
        self.left, self.kills, self.most = kills, 0, most
        self.chance = random.Random(seed)
        self.over = threading.Event()

    def run(self) -> None:
        while self.left > self.kills and not self.over.wait(self.chance.random() * self.most):
            living = workers()
            if living:
                try:
                    os.kill(self.chance.choice(living), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.kills += 1


def workers() -> list[int]:
    """Pids that the pools of this process have."""
    from shmq.workers import pool

    return [pid for each in list(pool._started) for pid in each.pids()]


def kill_workers(path: str, *, kills: int, seed: int, ordered: bool, most: float = 0.2) -> int:
    """Run a flow of three stages, kill so many workers meanwhile, and judge what came out; how many were killed."""
    killer = Killer(kills, seed, most)

    def source():
        number = 0
        while killer.is_alive() or number < 300:
            yield number
            number += 1
        items.append(number)

    items: list[int] = []
    flow = shmq.Flow(path).stage(stages.uneven, workers=3, ordered=ordered, attempts=1000)
    if ordered:
        flow.stage(stages.double, workers=2, ordered=True, attempts=1000)
    else:
        flow.stage(stages.double_all, workers=2, batch=8, attempts=1000)
    flow.stage(stages.same, workers=2, ordered=ordered, attempts=1000)
    killer.start()
    try:
        summary = flow.run(source())
    finally:
        killer.over.set()
        killer.join()
    with shmq.open(f"{path}/out", create=False, trusted=True) as out:
        got = [message.payload for message in out.reader()]
    assert sorted(got) == [2 * n for n in range(items[0])], "something was lost or doubled"
    assert not ordered or got == sorted(got), "the order was lost"
    assert (summary.items, summary.dead) == (items[0], 0)
    assert [each.items for each in summary.stages] == [items[0]] * 3
    return killer.kills

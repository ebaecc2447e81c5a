"""Clients and hub are killed at random, while somebody puts: each queue there is the beginning of its source."""

from __future__ import annotations

import random
import time

from hubs import Hub, content, push_once, token_of
from support import Child, until

import shmq
from shmq import replica


def put_until_killed(say, path) -> None:
    with shmq.open(str(path), chunk_bytes=1 << 18) as queue:
        say("puts")
        while True:
            for _ in range(10):
                queue.put(b"%d " % queue.next_index * random.randrange(1, 200))
            time.sleep(0.004)


def is_a_beginning(source, there) -> int:
    """How many messages the hub has: the first ones, at the same indexes."""
    if not there.exists():
        return 0
    here, whole = content(there), content(source)
    assert here == whole[: len(here)]
    return len(here)


def test_hub_and_clients_are_killed_again_and_again(root, clients, tmp_path):
    """Who was killed comes again; who was not waits, and goes on by itself."""
    names = ("till-1", "till-2")
    places = {name: (tmp_path / name, root / f"{name}.orders") for name in names}

    def push(say, client, at) -> None:
        replica.replicate(places[client][0], at, name=f"{client}.orders", token=token_of(client))

    there = Hub(root, clients)
    producers, pushing = [], {}
    try:
        for name in names:
            producers.append(Child(put_until_killed, places[name][0]))
            producers[-1].hear()
            pushing[name] = Child(push, name, there.at)
        before = dict.fromkeys(names, 0)
        for _ in range(16):
            time.sleep(random.uniform(0.0, 0.1))
            if random.random() < 0.5:
                there.kill()
                there = there.again()
            else:
                name = random.choice(names)
                pushing[name].kill()
                pushing[name] = Child(push, name, there.at)
            for name in names:
                now = is_a_beginning(*places[name])
                assert now >= before[name]
                before[name] = now
        until(lambda: all(is_a_beginning(*places[name]) > before[name] for name in names))
        assert not any(each.has_spoken() for each in pushing.values()), "a client gave up"
        for each in (*producers, *pushing.values()):
            each.kill()
        for name in names:
            push_once(places[name][0], there.at, f"{name}.orders")
            assert content(places[name][1]) == content(places[name][0]) != []
            with shmq.open(str(places[name][1]), read_only=True) as queue:
                assert queue.verify().problems == ()
    finally:
        for each in (there, *producers, *pushing.values()):
            each.__exit__()

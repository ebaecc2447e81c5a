"""
Workers that forward and are killed, over and over: `python -m tests.forward.campaign --kills 1000`.

    a --(group "work")--> b --(group "on")--> c, and what b's group forwards goes back into b once, too

Each message of `a` becomes two in `b`, of which the even ones go on to `c` as one and the odd ones come into `b` once
more. Workers take one message or several, with a lease or none; they are killed with SIGKILL at any moment, stopped for
a while, and their targets are full now and then. At the end all is drained by workers that nobody kills. Then
everything is in `c` exactly once: nothing lost, nothing twice, whoever died where.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import shmq
from tests.support import start

WORKERS = 4
DEADLINE = 60.0


def forward_some(consumer: shmq.GroupConsumer, rng: random.Random, targets: dict[str, shmq.Queue]) -> None:
    """One turn of a worker: what it finds, once; most single ones in the plain way, which the built-in goes alone."""
    if rng.random() < 0.5:
        messages = [consumer.get(timeout=0.01)]
        if rng.random() < 0.8:
            with messages[0].forward() as f:
                step(f, messages[0], targets)
            return
    else:
        messages = consumer.get_many(rng.randint(2, 8), timeout=0.01)
    forward_all(messages, targets)


def forward_all(messages: list[shmq.Message], targets: dict[str, shmq.Queue]) -> None:
    """As one."""
    with shmq.forward(*messages, timeout=0.2) as f:
        for message in messages:
            step(f, message, targets, message=message)


def step(f: shmq.Forward, came: shmq.Message, targets: dict[str, shmq.Queue], **of: shmq.Message) -> None:
    kind, _, number = bytes(came.view).partition(b" ")
    if kind == b"a":
        f.put(targets["b"], b"even %s" % number, **of, key=number)
        f.put(targets["b"], b"odd %s" % number, **of)
    elif kind == b"odd":
        f.put(targets["b"], b"back %s" % number, **of, headers={"from": "b"})
    else:
        f.put(targets["c"], kind + b" " + number, **of, ttl=3600.0)


def work(root: str, seed: int, turns: int) -> None:
    """A worker, until it is killed or has had so many turns."""
    rng = random.Random(seed)
    with contextlib.ExitStack() as stack:
        queues = {name: stack.enter_context(shmq.open(f"{root}/{name}")) for name in "abc"}
        members = [
            stack.enter_context(queues["a"].consumer("work", group=True)),
            stack.enter_context(queues["b"].consumer("on", group=True)),
        ]
        for _ in range(turns):
            with contextlib.suppress(shmq.Empty, shmq.Full, shmq.LeaseLost):
                forward_some(rng.choice(members), rng, queues)


def make(root: str, rng: random.Random) -> None:
    """Three queues, and their groups."""
    lease = rng.choice([None, 0.02, 0.2])
    chunk_bytes = rng.choice([16384, 1 << 20])
    for name, group in (("a", "work"), ("b", "on"), ("c", None)):
        with shmq.open(f"{root}/{name}", chunk_bytes=chunk_bytes) as queue:
            if group is not None:
                queue.consumer(group, group=True, ack="explicit", lease=lease, window=64).close()
            else:
                queue.consumer("keep").close()


def reap(pids: dict[int, int]) -> None:
    """Forget those that have ended; one that failed is a finding."""
    for pid in list(pids):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            del pids[pid]
            code = os.waitstatus_to_exitcode(status)
            if code not in (0, -signal.SIGKILL):
                raise AssertionError(f"a worker ended with {code}")


def disturb(root: str, rng: random.Random, kills: int) -> int:
    """Keep workers at it and kill them; how many were."""
    pids: dict[int, int] = {}
    done = put = 0
    with shmq.open(f"{root}/a") as source, shmq.open(f"{root}/c") as last:
        keep = last.consumer("keep")
        while done < kills:
            while len(pids) < WORKERS:
                pid = start(work, root, rng.getrandbits(32), 2000)
                pids[pid] = pid
            for _ in range(rng.randint(0, 20)):
                source.put(b"a %d" % put)
                put += 1
            if rng.random() < 0.1:
                last.configure(max_messages=rng.choice([None, 1]))
            time.sleep(rng.random() * 0.03)
            reap(pids)
            victim = rng.choice(list(pids)) if pids else 0
            if victim and rng.random() < 0.15:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGSTOP)
                    time.sleep(rng.random() * 0.05)
                    os.kill(victim, signal.SIGCONT)
            elif victim:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                done += 1
        last.configure(max_messages=None)
        keep.close()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return put


def drain(root: str) -> None:
    """Forward what is left, by one that nobody kills."""
    until = time.monotonic() + DEADLINE
    with contextlib.ExitStack() as stack:
        queues = {name: stack.enter_context(shmq.open(f"{root}/{name}")) for name in "abc"}
        members = [queues["a"].consumer("work", group=True), queues["b"].consumer("on", group=True)]
        for member in members:
            stack.enter_context(member)
        while any(member.lag for member in members):
            assert time.monotonic() < until, f"not drained: {members}"
            for member in members:
                with contextlib.suppress(shmq.Empty, shmq.Full, shmq.LeaseLost):
                    forward_all(member.get_many(50, timeout=0.001), queues)


def judge(root: str, put: int) -> list[str]:
    """What is wrong with what came to be in the last queue."""
    with shmq.open(f"{root}/c", read_only=True) as last:
        there = collections.Counter(bytes(message.view) for message in last.reader())
    wanted = {b"%s %d" % (kind, number) for kind in (b"even", b"back") for number in range(put)}
    twice = {payload: count for payload, count in there.items() if count > 1}
    return [
        f"{what}: {sorted(which)[:10]}"
        for what, which in (("lost", wanted - there.keys()), ("twice", twice), ("made up", there.keys() - wanted))
        if which
    ]


def run(seed: int, kills: int, keep: str | None = None) -> tuple[int, list[str]]:
    """One round: how many messages went in, and what is wrong."""
    rng = random.Random(seed)
    root = tempfile.mkdtemp(prefix="shmq-forward-") if keep is None else keep
    make(root, rng)
    put = disturb(root, rng, kills)
    drain(root)
    wrong = judge(root, put)
    if not wrong and keep is None:
        shutil.rmtree(root)
    elif wrong:
        wrong.append(f"its queues: {root}")
    return put, wrong


def main() -> int:
    """Rounds of about a hundred kills each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    killed = messages = findings = 0
    while killed < arguments.kills:
        round_kills = min(100, arguments.kills - killed)
        put, wrong = run(seed, round_kills)
        killed, messages = killed + round_kills, messages + put
        if wrong:
            findings += 1
            print("FOUND", *wrong, sep="\n  ")
            print(f"repeat with: python -m tests.forward.campaign --kills {round_kills} --seed {seed}", flush=True)
        seed += 1
    print(f"{killed:,} workers killed while they forwarded {messages:,} messages; {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

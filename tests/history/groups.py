"""
Histories of groups from real processes: members that take, finish, give back, are killed, stopped and started again.

    python -m tests.history.groups --histories 300

Every process writes what it does into one log, a line at a time. The judge then knows of each message who had it, by
its attempts: 1, 2, 3, ... in the order of handing out. What must hold: every message was finished once, and never
handed out afterwards; nobody had it while somebody else who lived had it; nothing was skipped. In every second history
most messages have keys and come in their order: nobody had one before the one before it of its key was finished.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import shmq
from tests.history.processes import PATIENCE, Process

MESSAGES = 300
WINDOWS = (64, 128, 65536)
KEYS = (1, 3, 20)
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


class Log:
    """
    Lines of: monotonic ns, pid, word, index, attempts, a full stop. One write a line; it begins with the end of the
    line before, for whoever is killed in a write may leave the beginning of a line. Such a one is left out.
    """

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pid = os.getpid()

    def __call__(self, word, index=-1, attempts=0):
        os.write(self._fd, f"\n{time.monotonic_ns()} {self._pid} {word} {index} {attempts} .".encode())


def join(queue, window, **options):
    return queue.consumer("g", group=True, ack="explicit", window=window, **options)


def key_of(index, keys):
    """The key of that message where there are so many; every fifth has none, and none has where there are 0."""
    mixed = index * 2654435761 >> 8
    return None if keys == 0 or mixed % 5 == 0 else b"%d" % (mixed // 5 % keys)


def work(_tell, path, log_path, seed, window):
    """A member, until it is killed."""
    chance, log = random.Random(seed), Log(log_path)
    queue = shmq.open(path)
    member = join(queue, window)
    held = []
    while True:
        try:
            got = member.get_many(chance.choice((1, 1, 3, 20)), timeout=chance.choice((0, 0.001, 0.01)))
        except shmq.Empty:
            got = []
        for message in got:
            log("had_it", message.index, message.attempts)
            assert message.payload == b"%d" % message.index
        held += got
        chance.shuffle(held)
        while held and chance.random() < 0.7:
            settle(held.pop(), chance, log)
        if chance.random() < 0.02:
            for message in held:
                log("leaves", message.index, message.attempts)
            held.clear()
            member.close()
            member = join(queue, window)


def settle(message, chance, log):
    """Finish a message, or give it back."""
    if chance.random() < 0.8:
        log("finishing", message.index, message.attempts)
        message.ack()
        log("finishes", message.index, message.attempts)
    else:
        log("returns", message.index, message.attempts)
        message.nack(delay=chance.choice((0, 0, 0.001, 0.02)))


def put(_tell, path, seed, keys):
    """A producer of everything."""
    chance, queue = random.Random(seed), shmq.open(path)
    done = 0
    while done < MESSAGES:
        count = min(chance.choice((1, 1, 1, 10, 40)), MESSAGES - done)
        batch = range(done, done + count)
        queue.put_many([b"%d" % i for i in batch], keys=[key_of(i, keys) for i in batch])
        done += count
        if chance.random() < 0.2:
            time.sleep(0.002)


def play(folder, seed):
    """One history: its log."""
    chance = random.Random(seed)
    path, log_path, window = f"{folder}/q", f"{folder}/log", chance.choice(WINDOWS)
    queue = shmq.open(path, options=shmq.Options(chunk_bytes=16384))
    keys = chance.choice(KEYS) if seed % 2 else 0
    join(queue, window, ordered_by="key" if keys else None).close()
    log, numbers = Log(log_path), iter(range(seed * 1000, seed * 1000 + 1000))
    log("keys", keys)
    members = [Process(work, path, log_path, next(numbers), window) for _ in range(chance.randint(2, 7))]
    with Process(put, path, next(numbers), keys) as producer:
        for _ in range(chance.randint(2, 6)):
            time.sleep(chance.uniform(0, 0.03))
            at = chance.randrange(len(members))
            if chance.random() < 0.2:
                members[at].stop()
                time.sleep(0.005)
                members[at].go_on()
            else:
                end(members[at], log)
                members[at] = Process(work, path, log_path, next(numbers), window)
        assert producer.wait() == 0
    for member in members:
        end(member, log)
    finish(queue, log, window)
    queue.close()
    return Path(log_path).read_text()


def end(member, log):
    """Kill one; it must not have ended by itself."""
    died = member.alive()
    log("kills", member.pid)
    member.kill()
    status = member.wait()
    assert died, "a member ended by itself"
    assert status == -9


def finish(queue, log, window):
    """What the dead have left."""
    deadline = time.monotonic() + PATIENCE
    with join(queue, window) as member:
        while member.head < MESSAGES or queue.consumers()["g"].group.parked:
            assert time.monotonic() < deadline, f"it never ends: {queue.consumers()}"
            try:
                for message in member.get_many(50, timeout=0.02):
                    log("had_it", message.index, message.attempts)
                    log("finishing", message.index, message.attempts)
                    message.ack()
                    log("finishes", message.index, message.attempts)
            except shmq.Empty:
                pass


class Account:
    """What the log says of each message: who had it as which attempt and when, and when it let go of it."""

    def __init__(self, text):
        self.killed, self.had, self.released, self.finished, self.wrong = {}, {}, {}, {}, []
        self.keys_there_are, self.ends = 0, {}
        for line in text.splitlines():
            if not line.endswith(" ."):
                continue
            when, pid, word, index, attempts, _ = line.split()
            getattr(self, word)(int(when), int(pid), int(index), int(attempts))

    def kills(self, when, _, pid, __):
        self.killed[pid] = when

    def had_it(self, when, pid, index, attempts):
        if attempts in self.had.setdefault(index, {}):
            self.wrong.append(f"{index} was handed out twice as attempt {attempts}")
        self.had[index][attempts] = (when, pid)

    def releases(self, when, _, index, attempts):
        self.released.setdefault((index, attempts), when)

    leaves = returns = releases

    def keys(self, _, __, keys, ___):
        self.keys_there_are = keys

    def finishing(self, when, pid, index, attempts):
        self.releases(when, pid, index, attempts)
        self.ends[index] = when

    def finishes(self, _, __, index, attempts):
        if index in self.finished:
            self.wrong.append(f"{index} was finished twice")
        self.finished[index] = attempts

    def judge_end(self, index):
        """It was handed out, and finished as what it was handed out as last."""
        last = max(self.had.get(index, {}), default=0)
        if index in self.finished and self.finished[index] != last:
            self.wrong.append(f"{index} was finished as {self.finished[index]}, and handed out as attempt {last}")
        if self.killed:
            return  # it may have had and finished it, and died before it could say so
        if not last:
            self.wrong.append(f"{index} was never handed out")
        elif index not in self.finished and (index, last) not in self.released:
            self.wrong.append(f"{index} was never finished")

    def judge_holders(self, index):
        """Nobody had it before the one before had let go of it, or was killed."""
        had = self.had.get(index, {})
        for attempt, following in itertools.pairwise(sorted(had)):
            _, holder = had[attempt]
            until = min(self.released.get((index, attempt), 1 << 63), self.killed.get(holder, 1 << 63))
            if until > had[following][0]:
                self.wrong.append(f"{index}: attempt {following} began while {holder} lived and had it")

    def judge_order(self):
        """Nobody had one before the one before it of its key began to be finished."""
        before = {}
        for index in range(MESSAGES):
            key = key_of(index, self.keys_there_are)
            had = min((when for when, _ in self.had.get(index, {}).values()), default=None)
            if key is not None and key in before and had is not None and had < self.ends.get(before[key], 0):
                self.wrong.append(f"{index} was handed out before {before[key]} of its key was finished")
            if key is not None and index in self.ends:
                before[key] = index


def judge(text):
    """What is wrong with a history, in words."""
    account = Account(text)
    for index in range(MESSAGES):
        account.judge_end(index)
        account.judge_holders(index)
    account.judge_order()
    return account.wrong


def main():
    """The long run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.histories):
        folder = tempfile.mkdtemp(dir=MEMORY)
        text = play(folder, seed)
        wrong = judge(text)
        if wrong:
            print(f"FOUND with seed {seed}:", *wrong[:20], f"the log is {folder}/log", sep="\n")
            return 1
        shutil.rmtree(folder)
    print(f"{options.histories} histories of groups from seed {options.seed} on: nothing wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())

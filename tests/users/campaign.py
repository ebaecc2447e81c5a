"""
Two users of one group at one queue, and kill -9 at random moments, each way: the survivor is the other user.

    python -m tests.users.campaign --kills 200          # of each user, as root
    python -m tests.users.campaign --kills 200 --seed 7

One of them lives on and counts; the other puts, takes and is killed. What a put returned for must be taken, by whoever
of the two, at least once; what an ack returned for, never again; indexes ascend as they were given; and everything
that lies there is the group's. Chunks are small, so that kills fall into rolling, retiring and using files again.
"""

import argparse
import json
import os
import random
import signal
import sys
import time

import shmq
from tests.support import Child
from tests.users.people import ALICE, APP, BOB, REASON, become, common_place, misfits

_LIFE = 0.06
"""Seconds that a victim lives at most, from its first word on."""
_BATCH = 5


def _open(path):
    return shmq.open(path, group=APP, chunk_bytes=16384)


def _some(work):
    try:
        return work.get_many(3, timeout=0)
    except shmq.Empty:
        return []


def live_until_killed(say, uid, path, number):
    """Put and take, and say what returned: one line each, so that a kill cuts between two."""
    os.umask(random.choice((0, 0o022, 0o077)))
    become(uid, APP)
    with _open(path) as queue, queue.consumer("work", group=True, ack="explicit") as work:
        say(json.dumps(["here"]))
        count = 0
        while True:
            payload = f"{number}.{count}".encode()
            queue.put(payload + b" " * 200, dedup=(f"life-{number}", count + 1) if count % 7 == 0 else None)
            say(json.dumps(["put", payload.decode()]))
            count += 1
            for message in _some(work) if count % 2 else ():
                taken = message.payload.decode().strip()
                say(json.dumps(["took", taken]))
                message.ack()
                say(json.dumps(["acked", taken]))


def survive(say, uid, path):
    """Put a little and take until told to stop; then take what is left."""
    become(uid, APP)
    stop = []
    signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
    taken, put, idle = {}, 0, 0
    with _open(path) as queue, queue.consumer("work", group=True, ack="explicit") as work:
        say(json.dumps(["here"]))
        while idle < 2:
            if not stop:
                queue.put(f"s.{put}".encode())
                put += 1
            found = 0
            for _ in range(_BATCH):
                try:
                    message = work.get(timeout=0.5 if stop else 0.002)
                except shmq.Empty:
                    break
                name = message.payload.decode().strip()
                taken[name] = taken.get(name, 0) + 1
                message.ack()
                found += 1
            idle = idle + 1 if stop and not found else 0
    say(json.dumps(["all", taken, put]))


class Round:
    """One user that survives, and lives of the other."""

    def __init__(self, victim, survivor, rng):
        self.victim, self.survivor, self.rng = victim, survivor, rng
        self.put, self.took, self.acked = set(), set(), set()

    def play(self, path, kills, tell):
        """Kill the victim that often; the problems found."""
        with Child(survive, self.survivor, path) as survivor:
            assert json.loads(survivor.hear()) == ["here"]
            for number in range(kills):
                self._live_and_die(path, number)
                tell(number + 1)
            survivor.signal(signal.SIGUSR1)
            _, taken, put = json.loads(survivor.hear(120))
            assert survivor.join() == 0
        return self.problems(path, taken, put)

    def _live_and_die(self, path, number):
        with Child(live_until_killed, self.victim, path, number) as victim:
            self.note(victim.hear())
            time.sleep(self.rng.random() * _LIFE)
            victim.signal(signal.SIGKILL)
            while victim.has_spoken():
                try:
                    line = victim.hear()
                except AssertionError:
                    break  # it has ended, and what it said last was cut
                self.note(line)
            status = victim.join()
            assert status == -signal.SIGKILL, f"life {number} ended by itself: {status}"

    def note(self, line):
        """What a victim said before it died."""
        what, *which = json.loads(line)
        if what != "here":
            {"put": self.put, "took": self.took, "acked": self.acked}[what].add(which[0])

    def problems(self, path, taken, put):
        """What may not be: in words; nothing, if all is well."""
        everything = self.put | {f"s.{number}" for number in range(put)}
        found = [f"lost: {sorted(everything - set(taken) - self.took)[:5]}"] * bool(everything - set(taken) - self.took)
        again = self.acked & set(taken)
        found += [f"taken again after an ack: {sorted(again)[:5]}"] * bool(again)
        found += [f"not the group's: {misfits(path)[:3]}"] * bool(misfits(path))
        with Child(_verify, self.survivor, path) as child:
            answer = child.hear(60)
            found += [f"verify: {answer}"] * (answer != "whole")
        return found


def _verify(say, uid, path):
    become(uid, APP)
    found = shmq.verify(path).problems
    say(str(found).replace("\n", " ") if found else "whole")


def run(kills, seed, tell=lambda *_: None):
    """Both ways: the problems found, and figures."""
    found, figures = [], []
    for victim, survivor, who in ((ALICE, BOB, "first"), (BOB, ALICE, "second")):
        with common_place() as place:
            played = Round(victim, survivor, random.Random(f"{seed}-{who}"))
            found += [f"{who} killed: {each}" for each in played.play(f"{place}/q", kills, tell)]
            figures.append((kills, len(played.put), len(played.acked)))
    return found, figures


def main():
    """As the arguments say; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of each of the two users (200)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    if REASON:
        print(f"skipped: {REASON}")
        return 0
    print(f"repeat: python -m tests.users.campaign --kills {arguments.kills} --seed {arguments.seed}", flush=True)
    begun = time.monotonic()
    found, figures = run(arguments.kills, arguments.seed)
    for kills, put, acked in figures:
        print(f"{kills} kills, {put} puts returned, {acked} acks returned in those that were killed")
    print(f"{sum(kills for kills, *_ in figures)} kills in all, {time.monotonic() - begun:.0f} s")
    print("; ".join(found) or "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

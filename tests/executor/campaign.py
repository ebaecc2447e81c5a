"""
Processes of an Executor killed at random, and nothing lost: `python -m tests.executor.campaign --kills 200`.

Tasks with keys and without are submitted by programs that are killed, and run by workers and starters that are killed;
then what is left runs, and each key must have one outcome, the right one, and each living submitter all of its own.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from concurrent.futures import CancelledError

import shmq
from shmq.executor import TaskDied
from tests.executor import jobs
from tests.support import Child


def submit_for_ever(say, path, first):
    """A program that submits keys one after the other, told as they are, and calls some off."""
    with shmq.Executor(path, max_workers=0) as ex:
        number = first
        while True:
            future = ex.submit(jobs.double, number, key=f"n{number}")
            if number % 7 == 0:
                say(f"{'cancelled' if future.cancel() else 'submitted'} {number}")
            else:
                say(f"submitted {number}")
            number += 1
            time.sleep(0.001)


def serve_until_killed(say, path):
    """A program with workers."""
    context = multiprocessing.get_context("fork")
    ex = shmq.Executor(path, 2, context, max_attempts=50)
    say("here")
    while ex:
        time.sleep(60)


class Killing:
    """One campaign, in a directory of its own."""

    def __init__(self, path, seed):
        self.path, self.random = path, random.Random(seed)
        self.killed = collections.Counter()
        self.cancelled, self.submitted = set(), set()
        self.first = 0

    def run(self, kills):
        """Kill so many times, then look."""
        with shmq.Executor(self.path, 0) as own:
            mine = [own.submit(jobs.double, each) for each in range(50)]
            submitter, server = self.submit(), self.serve()
            try:
                for _ in range(kills):
                    time.sleep(self.random.uniform(0.0, 0.03))
                    self.hear(submitter)
                    whom = self.random.choice(["worker"] * 6 + ["submitter", "starter"])
                    if whom == "worker":
                        self.kill_a_worker(own)
                    elif whom == "submitter":
                        submitter.kill()
                        self.hear(submitter)
                        submitter = self.submit()
                    else:
                        server.kill()
                        server = self.serve()
                    self.killed[whom] += 1
            finally:
                submitter.kill()
                self.hear(submitter)
                server.kill()
            self.look(mine)

    def submit(self):
        self.first += 1_000_000
        return Child(submit_for_ever, self.path, self.first)

    def serve(self):
        child = Child(serve_until_killed, self.path)
        assert child.hear() == "here"
        return child

    def hear(self, child):
        with contextlib.suppress(AssertionError, OSError, ValueError):  # it is killed, and said no more
            while child.has_spoken():
                word, number = child.hear(deadline=1).split()
                (self.cancelled if word == "cancelled" else self.submitted).add(int(number))

    def kill_a_worker(self, own):
        pids = own.workers()
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(pids), self.random.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]))

    def look(self, mine):
        """All that is left runs; then all that was promised must be there."""
        context = multiprocessing.get_context("fork")
        with shmq.Executor(self.path, 2, context) as ex:
            values = [each.result(timeout=120) for each in mine]
            assert values == [2 * each for each in range(50)], "a living submitter misses an outcome"
            for number in sorted(self.submitted):
                try:
                    assert ex.result(f"n{number}", timeout=120) == 2 * number
                except TaskDied as problem:
                    assert "attempt" in str(problem) or problem.attempts >= 3  # noqa: PT017  # it is an outcome
            for number in sorted(self.cancelled):
                try:
                    raise AssertionError(f"{number} was cancelled and has {ex.result(f'n{number}', timeout=120)!r}")
                except CancelledError:
                    pass
            assert ex.submit(jobs.double, 1).result(timeout=60) == 2


def main():
    """Run one campaign and tell of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    print(f"python -m tests.executor.campaign --kills {given.kills} --seed {given.seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="shmq-executor-")
    killing = Killing(os.path.join(folder, "jobs"), given.seed)
    began = time.monotonic()
    killing.run(given.kills)
    told = ", ".join(f"{count} of {whom}s" for whom, count in sorted(killing.killed.items()))
    print(
        f"{given.kills} kills ({told}) in {time.monotonic() - began:.0f} s; {len(killing.submitted)} keys and "
        f"{len(killing.cancelled)} cancelled ones, each with its one outcome"
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()

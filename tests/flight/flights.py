"""A service as a process of its own, and messages whose payloads are numbers."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa


def table(start, stop):
    """Messages whose payloads are numbers."""
    return pa.table({"payload": pa.array([b"%d" % n for n in range(start, stop)], pa.binary())})


def numbers(batches):
    return [int(each) for batch in batches for each in batch["payload"].to_pylist()]


class Served:
    """`shmq serve --flight`, a process that can be killed and started again at the same place."""

    def __init__(self, root, location, *words, before=()):
        self._words = [*before, sys.executable, "-m", "shmq", "serve", str(root), "--flight", location, *words]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self._words, stderr=subprocess.PIPE, text=True)
        said = self.process.stderr.readline()
        assert said.startswith("shmq: serving "), said
        self.location = said.split()[-1]
        return self

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        self.process.stderr.close()
        return self.process.wait(30)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()

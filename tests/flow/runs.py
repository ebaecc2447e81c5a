"""Runs of a flow in an interpreter of its own, to be interrupted and killed with all its workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = """
import sys
sys.path.insert(0, {here!r})
import shmq
from stages import *

def source(count, pause={pause}):
    for n in range(count):
        if pause:
            time.sleep(pause)
        yield n

if __name__ == "__main__":
    flow = shmq.Flow({path!r}, context={context!r}){stages}
    summary = flow.run(source({count}))
    print(summary.items, summary.dead, flush=True)
"""


class Running:
    """An interpreter that runs a flow, leader of a process group of its own."""

    def __init__(self, path, stages, count, *, pause=0.0, context="forkserver"):
        text = PROGRAM.format(here=str(HERE), path=str(path), stages=stages, count=count, pause=pause, context=context)
        program = Path(f"{path}.py")
        program.write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def interrupt(self):
        """As a terminal does: everybody in the group hears of it."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill_all(self):
        """Everything at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def kill_starter(self):
        """Only who runs it."""
        self.process.kill()
        self.process.communicate()

    def others(self):
        """Pids of all others in the group that live."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[2]) == self.process.pid and int(pid) != self.process.pid and fields[0] != "Z":
                found.append(int(pid))
        return found

    def end(self, timeout=60):
        """How it ended, and what it said."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

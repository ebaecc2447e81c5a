"""
Long runs beside the living sej and libkestrel: thousands of segments, and everybody is killed now and then.

    python tests/formats/real/living.py --sources DIR --work DIR [--seconds N] [--seed S] [FORMAT ...]

Message number n has the text n. The real writer writes bursts of them, is killed by kill -9 or closed, and opened
again; in between, where the format allows it, we append. Meanwhile a follower of ours, at times slow, commits where it
is and is killed; an import of ours is run again and again and is killed. In the end every reader has had every message,
in order; the import has each once. What is lost, doubled or out of order ends the run with a line that says so.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from against import DifferentError, Program, build, same

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support import start

import shmq
from shmq import formats
from shmq.formats import Entry, sej

END_SECONDS = 60


def follow(folder, name, file, seed):
    """Follow from where the file ends on; write down what comes: the number, a line each."""
    dice = random.Random(seed)
    with open(file, "a+b", buffering=0) as out:
        out.seek(0)
        lines = out.read().split(b"\n")
        out.truncate(sum(len(line) + 1 for line in lines[:-1]))  # a line that was cut by kill -9
        begin = len(lines) - 1 + (name == "libkestrel")
        queue = "jobs" if name == "libkestrel" else None
        for number, entry in enumerate(
            formats.read(folder, name, queue, start=begin, follow=True), begin - (name == "libkestrel")
        ):
            if int(entry.payload) != number or entry.index != number + (name == "libkestrel"):
                out.write(b"found %b as %d where %d is next\n" % (entry.payload, entry.index, number))
                return
            out.write(entry.payload + b"\n")
            if dice.random() < 0.0005:
                time.sleep(0.3)


def bring(folder, name, into):
    """Import what is there."""
    queue = "jobs" if name == "libkestrel" else None
    formats.import_queue(folder, into, name, queue, resume=True, part=500, lossy=True, consumers=False)


class Helper:
    """A process of ours that is killed and started again."""

    def __init__(self, *work):
        self._work = work
        self._pid = start(*work)
        self.kills = 0

    def again(self, dice):
        """Kill it, at times; start it if it is not there."""
        if dice.random() < 0.3:
            self.end()
        elif os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            return
        self._pid = start(*self._work)

    def end(self):
        """Kill -9."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self.kills += 1


class Sej:
    """The real writer, and ours in turns."""

    name = "sej"

    def __init__(self, program, folder, dice):
        self._program, self._folder, self._dice = program, folder, dice
        self.count = 0
        program.ask("open", folder, 1)

    def burst(self):
        """Some hundred messages, by it or by us; sometimes killed in the middle."""
        dice, many = self._dice, self._dice.choice([1, 50, 400])
        if dice.random() < 0.3:
            self._program.ask("close")
            with sej.Appender(self._folder, segment_bytes=dice.choice([1, 1, 900]), cut=True) as appender:
                if appender.next != self.count:
                    raise DifferentError(f"we go on with {appender.next}, and {self.count} is next")
                appender.append(*[Entry(b"%d" % n, None, n) for n in range(self.count, self.count + many)])
            self.count += many
        elif dice.random() < 0.3:
            pid = start(lambda: (time.sleep(dice.random() / 20), os.kill(self._program.pid, signal.SIGKILL)))
            with contextlib.suppress(BrokenPipeError):
                self._program.try_to("many", self.count, many)
            os.waitpid(pid, 0)
            self._program.kill()  # that it is dead is known by waiting for it
        else:
            self._program.ask("many", self.count, many)
            self.count += many
            self._program.ask("close")
        size = dice.choice([1, 1, 1, 200, 5000])
        if self._program.try_to("open", self._folder, size)[1] is None:
            self._program.ask("open", self._folder, size)  # the first time it cuts off what is not whole
        following = int(self._program.ask("next")[1])
        if following < self.count:
            raise DifferentError(f"{self.count} were acknowledged, and it goes on with {following}")
        self.count = following

    def state(self):
        return len(os.listdir(self._folder / "jnl"))


class Libkestrel:
    """The real program; a reader that never reads keeps it from deleting anything."""

    name = "libkestrel"

    def __init__(self, program, folder, dice):
        self._program, self._folder, self._dice = program, folder, dice
        self.count = 0
        self._open()
        program.ask("many", 0, 1)
        self.count = 1

    def _open(self):
        self._program.ask("open", self._folder, "jobs", 70)
        self._program.ask("reader", "never")

    def burst(self):
        """Some puts; then it is closed, or killed; at times we append."""
        dice, many = self._dice, self._dice.choice([1, 50, 200])
        self._program.ask("many", self.count, many)
        self.count += many
        if dice.random() < 0.5:
            return
        if dice.random() < 0.5:
            self._program.kill()
        else:
            self._program.ask("close")
            self._program.close()
            if dice.random() < 0.5:
                more = [Entry(b"%d" % n, None, 1) for n in range(self.count, self.count + 30)]
                formats.append(self._folder, more, "jobs", "libkestrel", journal_bytes=70)
                self.count += 30
        self._open()

    def state(self):
        return len(os.listdir(self._folder))


def run(kind, program, folder, dice, seconds):
    """One run; what it saw."""
    place = folder / "queue"
    place.mkdir()
    writer = kind(program, place, dice)
    seen, into = folder / "seen", folder / "into"
    helpers = [Helper(follow, place, kind.name, seen, dice.random()), Helper(bring, place, kind.name, into)]
    bursts, end = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            writer.burst()
            bursts += 1
            for helper in helpers:
                helper.again(dice)
        helpers[1].end()
        bring(place, kind.name, into)
        end = time.monotonic() + END_SECONDS
        while seen.read_bytes().count(b"\n") < writer.count and time.monotonic() < end:
            helpers[0].again(random.Random(0))
            time.sleep(0.1)
    finally:
        for helper in helpers:
            helper.end()
    wanted = [b"%d" % number for number in range(writer.count)]
    same("followed", seen.read_bytes().split(b"\n")[:-1], wanted)
    with shmq.open(into, read_only=True) as queue, queue.reader() as reader:
        same("imported", [message.payload for message in reader], wanted)
    queue = "jobs" if kind.name == "libkestrel" else None
    same("read", [entry.payload for entry in formats.read(place, kind.name, queue)], wanted)
    kills = " and ".join(f"{helper.kills}" for helper in helpers)
    return (
        f"{writer.count:,} messages, {writer.state():,} files, {bursts} bursts; killed {kills} times: follower, import"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", default=["sej", "libkestrel"])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=600, help="for each format")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wrong = 0
    for name in options.formats:
        program = Program(build(name, options.sources, options.work))
        kind = {"sej": Sej, "libkestrel": Libkestrel}[name]
        with tempfile.TemporaryDirectory(dir=options.work) as folder:
            try:
                found = run(kind, program, Path(folder), random.Random(options.seed), options.seconds)
            except DifferentError as error:
                wrong += 1
                found = f"different: {error}"
        program.close()
        print(f"{name}: {found}", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())

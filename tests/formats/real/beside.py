"""
Long runs beside the living Kestrel and QewQew: packs, rewrites, rotations, slow followers, both sides killed.

    python tests/formats/real/beside.py --sources DIR [--work DIR] [--seconds N] [--seed S] [kestrel] [qewqew]

DIR and the work folder are those of against.py. A round that fails prints its seed. What is told besides: how many
rounds there were, how many items went through, and how often a follower said that something may be missing.
"""

import argparse
import collections
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from against import T_MS, DifferentError, Program, build, hexed
from support import start

from shmq import Corrupt, formats
from shmq.formats import qewqew

FOLLOW = """
import sys, time, random
from shmq import Corrupt, formats
dice = random.Random(int(sys.argv[2]))
try:
    for entry in formats.read(sys.argv[1], "kestrel", "cars", follow=True):
        # A pack holds empty items for those that are taken behind it; who begins at one may meet them, as the program.
        print(*entry.payload.split()[:1] and [entry.payload.split()[0].decode()], flush=True)
        if dice.random() < float(sys.argv[3]):
            time.sleep(dice.random() * 0.05)
except Corrupt as error:
    print("corrupt", error, flush=True)
"""


class Follower:
    """A follower in a process of its own, that may be killed; what was added before it began is not checked."""

    def __init__(self, dice, folder):
        self._from = None
        self._file = tempfile.TemporaryFile("w+")  # noqa: SIM115
        words = [sys.executable, "-c", FOLLOW, folder, dice.randrange(1 << 30), dice.choice([0, 0.05, 0.5])]
        self._process = subprocess.Popen([str(word) for word in words], stdout=self._file, stderr=subprocess.STDOUT)

    def notice(self, number):
        """From which number on it has begun, once it has."""
        if self._from is None and os.fstat(self._file.fileno()).st_size:
            self._from = number

    def end(self, unsure, last, words):
        """Kill it; what it has delivered is every number in turn, but for those of which nobody knows."""
        deadline = time.monotonic() + 20
        while (
            last is not None and self._from is not None and self._process.poll() is None and time.monotonic() < deadline
        ):
            self._file.seek(0)
            if str(last) in self._file.read().split():
                break
            time.sleep(0.05)
        self._process.kill()
        self._process.wait()
        self._file.seek(0)
        lines = self._file.read().splitlines()
        self._file.close()
        if self._from is None:
            return
        corrupt = bool(lines) and lines[-1].startswith("corrupt")
        words["said to be corrupt"] += corrupt
        words["followers"] += 1
        found = [int(line) for line in lines if line.isdigit() and int(line) >= self._from]
        for before, after in itertools.pairwise(found):
            if set(range(before + 1, after)) - unsure or after <= before:
                raise DifferentError(f"{after} was delivered behind {before}")
        words["items"] += len(found)
        if last is not None and not corrupt and (not found or found[-1] != last):
            raise DifferentError(f"{found[-1:]} is the last one, and {last} was added")


def kestrel(dice, command, folder, words):
    """One program that is killed and begins again, and followers of several speeds that are killed, too."""
    folder.mkdir()
    program, sizes = Program(command), dice.choice([(4000, 12_000, 2000), (1000, 3000, 500), (20_000, 40_000, 5000)])
    program.ask("open", folder, "cars", *sizes)
    program.ask("add", hexed(b"0"), T_MS, 0)
    number, unsure, followers = 1, set(), []
    for _ in range(dice.choice([300, 1500])):
        if len(followers) < 3 and dice.random() < 0.01:
            followers.append(Follower(dice, folder))
        for follower in followers:
            follower.notice(number)
        if followers and dice.random() < 0.0005:
            followers.pop().end(unsure, None, words)
        if dice.random() < 0.002:
            threading.Timer(dice.random() * 0.01, program.kill).start()
        what = dice.choices(["add", "remove", "tremove"], [55, 45, 2])[0]
        data = b"%d " % number + dice.randbytes(dice.choice([0, 30, 100]))
        try:
            program.ask(what, *([hexed(data), T_MS + dice.randrange(5000), 0] if what == "add" else []))
        except (DifferentError, BrokenPipeError):  # it was killed, or it has died of its own None.get
            unsure.add(number)
            words["starts"] += 1
            with contextlib.suppress(DifferentError, OSError):
                program.kill()
            program.ask("open", folder, "cars", *sizes)
        number += what == "add"
    program.ask("add", hexed(b"%d" % number), T_MS, 0)
    for follower in followers:
        follower.end(unsure, number, words)
    program.kill()


def queue_of(header):
    return [int(entry.payload.split()[0]) for entry in formats.read(header, "qewqew")]


def in_place(say, header, seed, number):
    """Ours, in a process that is killed: it says what it is about to do, and what it has done."""
    dice = random.Random(seed)
    with qewqew.open(header, chunk_bytes=700, sync=False) as queue:
        while True:
            if dice.random() < 0.55:
                say(f"put {number}")
                queue.put(b"%d " % number + bytes(dice.randrange(150)))
                number += 1
            else:
                say("take -")
                queue.take()
            say("done -")


def qewqew_turns(dice, command, folder, words):
    """It and we put and take by turns, and each is killed in the middle of a call: that call is done, or it is not."""
    folder.mkdir()
    header, wanted, number = folder / "q", [], 0
    for _ in range(12):
        about = None
        if dice.random() < 0.5:
            done, about, number = ours_for_a_while(dice, header, number)
            for verb, which in done:
                wanted = [*wanted, int(which)] if verb == "put" else wanted[1:]
        else:
            program = Program(command)
            program.ask("open", header, 700)
            threading.Timer(0.02 + dice.random() * 0.1, program.kill).start()
            with contextlib.suppress(DifferentError, BrokenPipeError, OSError):
                while True:
                    take = dice.random() < 0.45 and len(list(folder.iterdir())) <= 2
                    about = ("take", "-") if take else ("put", number)
                    number += not take
                    program.ask(*(["dequeue"] if take else ["put", hexed(b"%d " % about[1] + bytes(50))]))
                    wanted = wanted[1:] if take else [*wanted, about[1]]
                    about = None
        words["kills"] += 1
        allowed = [wanted]
        if about is not None:
            allowed.append([*wanted, int(about[1])] if about[0] == "put" else wanted[1:])
        found = queue_of(header)
        if found not in allowed:
            try:
                with qewqew.open(header):
                    raise DifferentError(f"{about}: {found[:3]}.. of {len(found)}, not {wanted[:3]}.. of {len(wanted)}")
            except Corrupt:  # its program was stopped between deleting a chunk and leading on
                words["said to be corrupt"] += 1
                return
        wanted = found
        words["items"] += len(found)


def ours_for_a_while(dice, header, number):
    """What we have done until we were killed, what we were about to do, and the next number."""
    read, write = os.pipe()
    pid = start(in_place, lambda word: os.write(write, f"{word}\n".encode()), header, dice.randrange(1 << 30), number)
    os.close(write)
    threading.Timer(0.02 + dice.random() * 0.1, os.kill, (pid, signal.SIGKILL)).start()
    with os.fdopen(read) as said:
        lines = [line.split() for line in said]
    os.waitpid(pid, 0)
    calls = [(verb, which) for verb, which in lines if verb != "done"]
    done = calls[: sum(verb == "done" for verb, _ in lines)]
    numbers = [int(which) for verb, which in calls if verb == "put"]
    return done, calls[len(done)] if len(calls) > len(done) else None, max(numbers, default=number - 1) + 1


ROUNDS = {"kestrel": kestrel, "qewqew": qewqew_turns}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", default=list(ROUNDS))
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--seconds", type=float, default=300, help="for each format")
    parser.add_argument("--seed", type=int, help="this round only")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="shmq-beside-"))
    work.mkdir(exist_ok=True)
    wrong = 0
    for name in options.formats:
        command, words, end = (
            build(name, options.sources, work),
            collections.Counter(),
            time.monotonic() + options.seconds,
        )
        seed = options.seed or 0
        while True:
            words["rounds"] += 1
            with tempfile.TemporaryDirectory(dir=work) as folder:
                try:
                    ROUNDS[name](random.Random(f"{name} {seed}"), command, Path(folder) / "queue", words)
                except DifferentError as error:
                    wrong += 1
                    print(f"{name} --seed {seed}: {error}", flush=True)
            seed += 1
            if options.seed is not None or time.monotonic() > end:
                break
        print(name, ", ".join(f"{count:,} {word}" for word, count in words.items()), flush=True)
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())

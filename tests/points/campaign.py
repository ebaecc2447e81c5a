"""
Every verb at every place where the interpreter looks for signals: `python -m tests.points.campaign`.

Something happens there, and a judge looks at what is left: a signal's handler raises ("raise"), the process forks, and
the child lives on ("fork"), or an allocation fails ("memory": place 7 is the eighth). Without --seconds all there are,
in order; with it, some drawn by --seed until the time is up. A finding is one line, which says how to repeat it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from typing import TYPE_CHECKING

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))  # as pytest has it

from interrupts import Round  # noqa: E402
from support import in_child  # noqa: E402

from points.forks import Forks  # noqa: E402
from points.memory import THERE, Starved  # noqa: E402
from points.verbs import BY_NAME, VERBS, World  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

HAPPENS = ("raise", "fork", "memory") if THERE else ("raise", "fork")
ALLOCATIONS = 800
"""More than any verb makes."""
_MODULE = "python -m tests.points.campaign"


def quick_disk() -> None:
    """Nothing here is about the disk, so nothing waits for it."""
    from shmq.storage import sync

    sync.data = sync.directory = lambda *_: None
    sync.pages = lambda *_: None


class Tried:
    """One verb, and what happens in it."""

    def __init__(self, verb: str, happens: str, folder: str) -> None:
        """Count its places."""
        self.verb = verb
        self.happens = happens
        os.mkdir(folder)
        self._world = World(BY_NAME[verb], folder)
        counting = Round(1 << 30)
        self._world.round(counting.interrupted)
        self.places = ALLOCATIONS if happens == "memory" else counting.seen

    def at(self, place: int) -> str | None:
        """Have it happen at that place; what was found, in one line."""
        forks = Forks()
        this = Round(place, forks if self.happens == "fork" else None)
        try:
            if self.happens == "memory":
                in_child(self._starve, place)  # the interpreter itself may not survive it
            else:
                with forks.ended():
                    self._world.round(this.interrupted, elsewhere=place % 10 == 4)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is a finding
            traceback.print_exception(problem, limit=-4, file=sys.stdout)
            self._world.problems.clear()
            words = f"{type(problem).__name__}: {problem}"[:300].replace("\n", " ")
            again = f"{_MODULE} --only '{self.verb}' --happens {self.happens} --place {place}"
            return f"{self.verb}, {self.happens} at place {place} of {self.places} ({this.at}): {words}  [{again}]"
        return None

    def _starve(self, allocation: int) -> None:
        self._world.round(Starved(allocation).interrupted, leaks=False)


class Run:
    """What was done so far."""

    def __init__(self, given: argparse.Namespace, folder: str) -> None:
        """Nothing yet."""
        self._given = given
        self._folder = folder
        self._known: dict[tuple[str, str], Tried] = {}
        self.found = self.rounds = 0
        self.verbs: set[str] = set()

    def play(self) -> None:
        """All of it."""
        end = time.monotonic() + (self._given.seconds or float("inf"))
        for tried, place in self._drawn() if self._given.seconds else self._all():
            finding = tried.at(place)
            self.rounds += 1
            self.verbs.add(tried.verb)
            if finding is not None:
                self.found += 1
                print("FOUND", finding, flush=True)
            if time.monotonic() >= end:
                return

    def _chosen(self) -> list[tuple[str, str]]:
        wanted = [each for each in self._given.only.split(",") if each]
        kinds = [self._given.happens] if self._given.happens else HAPPENS
        return [(name, happens) for name in wanted or [verb.name for verb in VERBS] for happens in kinds]

    def _tried(self, name: str, happens: str) -> Tried:
        key = name, happens
        if key not in self._known:
            self._known[key] = Tried(name, happens, f"{self._folder}/{len(self._known)}")
        return self._known[key]

    def _all(self) -> Iterator[tuple[Tried, int]]:
        for each in self._chosen():
            tried = self._tried(*each)
            if self._given.place is not None:
                yield tried, self._given.place
                continue
            began = time.monotonic()
            for place in range(self._given.seed % self._given.step, tried.places, self._given.step):
                yield tried, place
            print(f"{tried.verb}, {tried.happens}: {tried.places} places, {time.monotonic() - began:.1f} s", flush=True)

    def _drawn(self) -> Iterator[tuple[Tried, int]]:
        draw = random.Random(self._given.seed)
        while True:
            every = self._chosen()
            draw.shuffle(every)
            for each in every:
                tried = self._tried(*each)
                yield tried, draw.randrange(tried.places)


def main() -> int:
    """One run; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="tests.points.campaign", description="Every verb at every place.")
    parser.add_argument("--only", default="", help="verbs, with commas between them")
    parser.add_argument("--happens", choices=HAPPENS, help="by default each")
    parser.add_argument("--place", type=int, help="that place alone")
    parser.add_argument("--step", type=int, default=1, help="every n-th place, from one that --seed says")
    parser.add_argument("--seconds", type=float, default=0.0, help="draw places until then, instead of all")
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    quick_disk()
    began, folder = time.monotonic(), tempfile.mkdtemp(prefix="shmq-points-")
    run = Run(given, folder)
    try:
        run.play()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{run.rounds:,} rounds of {len(run.verbs)} verbs, {run.found} findings in {time.monotonic() - began:.0f} s, "
        f"seed {given.seed}"
    )
    return 1 if run.found else 0


if __name__ == "__main__":
    sys.exit(main())

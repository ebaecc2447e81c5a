"""One history on one file system, cut at many moments; and the recoveries from these, cut too."""

from __future__ import annotations

import dataclasses
import faulthandler
import functools
import json
import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import Child

from . import device, judge, workers
from .images import Log, Platter, Write, chosen, records
from .told import Told

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.random import Generator

    from .told import Case

MOST_FINDINGS = 5
DEEPEST, RECOVERIES = 2, 0.25
"""How often a recovery is cut within recoveries; of how many cuts the recovery is cut, and how often each."""
PER_RECOVERY = 2
THOROUGH = 3
"""Every so many are judged thoroughly."""
PATIENCE = 30.0
"""Seconds that a queue may take to be judged."""


@dataclasses.dataclass
class Result:
    """What a run came to."""

    kind: str
    seed: int
    cuts: int = 0
    recoveries: int = 0
    refused: int = 0
    """Cuts of these that were of a recovery; images that the kernel did not mount."""
    writes: int = 0
    flushes: int = 0
    messages: int = 0
    seconds: float = 0.0
    findings: list[str] = dataclasses.field(default_factory=list)


class Rig:
    """One history."""

    def __init__(self, kind: device.Kind, seed: int, root: str, program: str, fault: str = "", keep: str = "") -> None:
        self.result = Result(kind.name, seed)
        self._kind = kind
        self._seed = seed
        self._root = root
        self._program = program
        self._fault = fault
        self._keep = keep
        for name in ("told", "mount"):
            os.makedirs(f"{root}/{name}")
        device.make(kind, self._image)

    @property
    def _image(self) -> str:
        return f"{self._root}/image"

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    # ---- before
    def record(self, seconds: float) -> tuple[Log, Told]:
        """Have the workers work for so long."""
        log, folder = self._at("log"), self._at("mount")
        with (
            device.served(self._program, self._image, log, self._at("disk")),
            device.mounted(self._kind, self._at("disk"), folder),
        ):
            os.mkdir(f"{folder}/queues")
            os.sync()
            place = workers.Place(f"{folder}/queues", self._at("told"), log, time.monotonic() + seconds, self._fault)
            workers.work(place, self._seed)
            behind = Log(log)
        told = Told(self._at("told"))
        self.result.writes, self.result.flushes = len(behind.writes), len(behind.flushes)
        self.result.messages = told.messages
        return behind, told

    # ---- after
    def cut(self, log: Log, told: Told, cuts: int, only: int | None = None) -> None:
        """That many cuts; or only the one of that number."""
        chance = np.random.default_rng([self._seed, 0])
        moments = sorted(log.moment(chance, told.begin) for _ in range(cuts))
        platter = Platter(self._image, log)
        for number, moment in enumerate(moments):
            loose = platter.advance(moment)
            if only in (None, number) and len(self.result.findings) < MOST_FINDINGS:
                own = np.random.default_rng([self._seed, 1, number])
                cases = {name: told.case(name, moment) for name in workers.OPTIONS}
                if os.environ.get("SHMQ_DISK_TRACE"):
                    print(
                        f"{time.monotonic():.1f} {self._kind.name} cut {number} at {moment}",
                        file=sys.stderr,
                        flush=True,
                    )
                self._one(chosen(loose, own, self._kind.sector), cases, own, f"{number}", 0)
        platter.close()

    def _one(self, writes: list[Write], cases: dict[str, Case], chance: Generator, at: str, depth: int) -> None:
        """One image: mount it, judge it; or recover it, judge that, and cut the recovery."""
        self.result.cuts += 1
        self.result.recoveries += depth > 0
        log, folder, boot = self._at(f"recovery{depth}"), self._at("mount"), os.urandom(16)
        queues, overlay = f"{folder}/queues", self._at("overlay")
        with open(overlay, "wb") as file:
            file.write(records(writes))
        said: dict[str, Any] | None = None
        now = cases
        try:
            with (
                device.served(self._program, self._image, log, self._at("disk"), overlay),
                device.mounted(self._kind, self._at("disk"), folder),
            ):
                if depth < DEEPEST and chance.random() < RECOVERIES * (depth + 1):
                    said = self._asked(at, judge.recover, queues, cases, log, boot)
                    behind = Log(log)
                    if said is None:
                        return
                    now = self._recovered(cases, said, log, behind.count)
                look = functools.partial(judge.everything, thorough=self.result.cuts % THOROUGH == 0)
                for finding in self._asked(at, look, queues, now, boot) or ():
                    self._find(at, finding)
                    if self._keep:
                        self._kept(at, writes)
        except device.MountError as problem:
            self.result.refused += 1
            print(f"{self._kind.name}, seed {self._seed}, cut {at}: {problem}", file=sys.stderr, flush=True)
            return
        if said is not None:
            for number in range(PER_RECOVERY):
                moment = int(chance.integers(0, behind.count + 1))
                upto = behind.covered(moment)
                kept = behind.between(0, upto) + chosen(behind.between(upto, moment), chance, self._kind.sector)
                deeper = self._recovered(cases, said, log, moment)
                self._one(writes + kept, deeper, chance, f"{at}/{moment}.{number}", depth + 1)

    def _kept(self, at: str, writes: list[Write]) -> None:
        """Keep the disk as it was when it was cut."""
        image = f"{self._keep}/disk-{self._seed}-{at.replace('/', '-')}"
        subprocess.run(["cp", "--sparse=always", self._image, image], check=True)
        with open(image, "r+b") as file:
            for each in writes:
                file.seek(each.offset)
                file.write(each.data)

    @staticmethod
    def _recovered(cases: dict[str, Case], said: dict[str, Any], log: str, moment: int) -> dict[str, Case]:
        return {
            name: judge.recovered(case, said[name], log, moment, synced=name in ("sync", "bound"))
            if name in said
            else case
            for name, case in cases.items()
        }

    def _asked(self, at: str, work: Callable[..., Any], *given: Any) -> Any:
        """What another process answers; None and a finding, if it does not."""

        def answer(say: Callable[[object], None]) -> None:
            faulthandler.dump_traceback_later(PATIENCE - 5, exit=True)  # where it hangs
            say(json.dumps(work(*given)))

        try:
            with Child(answer) as child:
                return json.loads(child.hear(PATIENCE))
        except AssertionError as problem:
            self._find(at, f"{getattr(work, '__name__', 'the judge')}: {problem}")
            return None

    def _find(self, at: str, what: str) -> None:
        self.result.findings.append(f"{self._kind.name}, seed {self._seed}, cut {at}: {what}")
        print("FOUND", self.result.findings[-1], file=sys.stderr, flush=True)


def run(kind: device.Kind, seed: int, cuts: int, root: str, program: str, **how: Any) -> Result:
    """Record one history and cut it."""
    began = time.monotonic()
    random.seed(seed)
    rig = Rig(kind, seed, root, program, how.get("fault", ""), how.get("keep", ""))
    log, told = rig.record(how.get("seconds", 3.0))
    rig.cut(log, told, cuts, how.get("only"))
    rig.result.seconds = time.monotonic() - began
    return rig.result

"""
Cuts the power while the queue recovers from a cut, and again while it recovers from that one; and kills it there.

    python -m tests.power.recoveries PROFILE SEED CUTS
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

import shmq

from .cuts import MOST_FINDINGS, Result
from .history import History, Recorder
from .images import Image, clear, lay_out, random_image, whole_image
from .judge import Telling, Truth, another_boot, judge
from .shim import Shim, scratch
from .workloads import PROFILES, Begins, Facts, Profile, Returned, options, record

if TYPE_CHECKING:
    from numpy.random import Generator

DEEPEST = 3
PER_RECOVERY = 60
"""Cuts in one recovery."""


class Nester:
    """Recovers from cuts of one history, and cuts that."""

    def __init__(self, profile: Profile, seed: int, root: str, shim: Shim) -> None:
        self.result = Result(profile.name, seed)
        self._options = options(profile)
        self._seed = seed
        self._root = root
        self._shim = shim
        for name in ("live", "cut"):
            os.makedirs(f"{root}/{name}", exist_ok=True)

    def go(self, history: History, cuts: int) -> None:
        """That many cuts in recoveries."""
        number = 0
        while self.result.cuts < cuts and len(self.result.findings) < MOST_FINDINGS and number < 100 + cuts:
            chance = np.random.default_rng([self._seed, 2, number])
            moment = int(chance.integers(1, len(history.events) + 1))
            telling = Telling(history)
            for _ in range(moment):
                telling.step()
            truth = telling.truth()
            if truth.exists:
                self._recover(random_image(telling.state, chance), truth, chance, str(number))
            number += 1

    def _recover(self, image: Image, truth: Truth, chance: Generator, at: str) -> None:
        recovery, boot = self._recorded(image, truth, at)
        if recovery is None:
            return
        deeper = []
        telling = Telling(recovery, truth)
        moments = len(recovery.events)
        chosen = set(chance.permutation(np.arange(recovery.begin, moments + 1))[:PER_RECOVERY].tolist())
        for moment in range(1, moments + 1):
            telling.step()
            if moment not in chosen:
                continue
            now = telling.truth()
            self._judge(whole_image(telling.state), now, f"{at}, killed at {moment}", boot)
            cut = random_image(telling.state, chance)
            self._judge(cut, now, f"{at}, cut at {moment}", None)
            deeper.append((cut, now, moment))
            if len(self.result.findings) >= MOST_FINDINGS:
                return
        if deeper and at.count("/") + 2 < DEEPEST:
            cut, now, moment = deeper[int(chance.integers(len(deeper)))]
            self._recover(cut, now, chance, f"{at}/{moment}")

    def _recorded(self, image: Image, truth: Truth, at: str) -> tuple[History | None, bytes]:
        """What the first process after the cut does; it puts something, too."""
        root, boot = f"{self._root}/live", os.urandom(16)
        lay_out(image, root)
        recorder = Recorder(root)
        try:
            with warnings.catch_warnings(), another_boot(boot), self._shim.listening(recorder.heard):
                warnings.simplefilter("ignore")
                _work(f"{root}/q", recorder, at)
        except Exception as problem:  # noqa: BLE001  # whatever goes wrong is a finding
            self._find(f"{at}, first", truth, problem)
            return None, boot
        finally:
            clear(root)
        return recorder.history, boot

    def _judge(self, image: Image, truth: Truth, at: str, boot: bytes | None) -> None:
        self.result.cuts += 1
        self.result.distinct += 1
        lay_out(image, f"{self._root}/cut")
        try:
            judge(f"{self._root}/cut/q", truth, self._options, thorough=self.result.cuts % 24 == 0, boot=boot)
        except Exception as problem:  # noqa: BLE001
            self._find(at, truth, problem)
        clear(f"{self._root}/cut")

    def _find(self, at: str, truth: Truth, problem: Exception) -> None:
        if os.environ.get("SHMQ_POWER_TRACE"):
            import traceback

            traceback.print_exception(problem)
        again = (
            f"python -m tests.power.campaign --only '{self.result.name}' --seed {self._seed} "
            f"--recoveries {self.result.cuts + 1} --jobs 1"
        )
        said = f"{type(problem).__name__}: {problem}".replace("\n", " ")[:700]
        self.result.findings.append(f"{self.result.name}, recovery {at}, during {truth.doing}: {said}  [{again}]")


def _facts(queue: Any) -> Facts:
    return Facts(queue.first_index, queue.next_index, {})


def _work(path: str, recorder: Recorder, at: str) -> None:
    recorder.say(Begins("recovery"))
    with shmq.open(path, create=False, unsafe_filesystem=True) as queue:
        there = frozenset(message.index for message in queue.reader())
        recorder.say(Returned(-1, _facts(queue), max(there, default=-1) + 1, {}, there))
        data = f"after {at}".encode()
        recorder.say(Begins("put", (data,)))
        index = queue.put(data)
        synced = queue.options.durability == shmq.Durability.SYNC
        recorder.say(Returned(index, _facts(queue), index + 1 if synced else -1))
        recorder.say(Begins("close"))
    recorder.look()


def run(profile: Profile, seed: int, cuts: int, shim: Shim) -> Result:
    """Record that profile with that seed, and cut recoveries of it."""
    began = time.monotonic()
    with scratch() as root:
        history = record(profile, f"{root}/work", seed, shim)
        nester = Nester(profile, seed, root, shim)
        nester.go(history, cuts)
    nester.result.seconds = time.monotonic() - began
    return nester.result


def main() -> int:
    """One run; the result as JSON on standard output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("profile")
    parser.add_argument("seed", type=int)
    parser.add_argument("cuts", type=int)
    given = parser.parse_args()
    profile = next(each for each in PROFILES if each.name == given.profile)
    result = run(profile, given.seed, given.cuts, Shim())
    print(json.dumps(dataclasses.asdict(result)))
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())

"""
Cuts the power many times in one history, and has each image judged. Run by campaign.py in processes with the shim.

    python -m tests.power.cuts PROFILE SEED CUTS [--fault F] [--at MOMENT.NUMBER] [--every K]
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import shutil
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np

from . import flows, forwarding, judge, replicas, sharded, workloads
from .images import Image, clear, every_image, lay_out, random_image
from .shim import Shim, scratch

if TYPE_CHECKING:
    from .history import History

MOST_FINDINGS = 5
RECOVERED, THOROUGH = 3, 24
"""A reader that changes nothing looks at every image; every so many are recovered and worked with; or all of that."""


@dataclasses.dataclass
class Result:
    """What a run came to."""

    name: str
    seed: int
    cuts: int = 0
    distinct: int = 0
    moments: int = 0
    seconds: float = 0.0
    recorded: float = 0.0
    findings: list[str] = dataclasses.field(default_factory=list)


class Cutter:
    """One history of work at one queue, cut again and again."""

    record: Any = staticmethod(workloads.record)

    def __init__(self, history: History, profile: Any, seed: int, root: str, fault: str = "") -> None:
        self.history = history
        self.result = Result(profile.name, seed)
        self.profile = profile
        self._seed = seed
        self.root = root
        self.fault = fault
        os.makedirs(root, exist_ok=True)

    def telling(self) -> Any:
        """What may be true, moment by moment."""
        return judge.Telling(self.history)

    def look(self, truth: Any, number: int, *, again: bool) -> None:
        """Judge what was laid out, as the image of that number."""
        path = f"{self.root}/q"
        if number % RECOVERED and not again:
            judge.only_look(path, truth)
        else:
            judge.judge(path, truth, workloads.options(self.profile), thorough=again or number % THOROUGH == 0)

    def random(self, cuts: int) -> None:
        """That many cuts, spread evenly over the history's moments."""
        moments = len(self.history.events)
        per_moment, more = divmod(cuts, moments)
        lucky = set(np.random.default_rng([self._seed, 0]).permutation(moments)[:more].tolist())
        telling = self.telling()
        for moment in range(1, moments + 1):
            telling.step()
            self._at(telling, moment, per_moment + (moment - 1 in lucky))

    def _at(self, telling: Any, moment: int, cuts: int) -> None:
        truth = telling.truth() if cuts else None
        known: set[int] = set()
        for number in range(cuts):
            if truth is None or len(self.result.findings) >= MOST_FINDINGS:
                return
            image = random_image(telling.state, np.random.default_rng([self._seed, moment, number]))
            self.result.cuts += 1
            if image.mark not in known:
                known.add(image.mark)
                self.one(image, truth, f"{moment}.{number}")
        self.result.moments += cuts > 0

    def again(self, at: str) -> None:
        """One cut, by its name."""
        moment, number = map(int, at.split("."))
        telling = self.telling()
        for _ in range(moment):
            telling.step()
        image = random_image(telling.state, np.random.default_rng([self._seed, moment, number]))
        lay_out(image, self.root)
        shutil.copytree(self.root, f"power-cut-{at}", dirs_exist_ok=True)
        clear(self.root)
        print(f"the image is in power-cut-{at}", file=sys.stderr)
        self.one(image, telling.truth(), at, again=True)

    def every(self, points: int, most: int) -> None:
        """All subsets of the last *most* pending words, at that many moments."""
        moments = len(self.history.events)
        chosen = set((np.random.default_rng([self._seed, 1]).permutation(moments)[:points] + 1).tolist())
        telling = self.telling()
        for moment in range(1, moments + 1):
            telling.step()
            if moment not in chosen:
                continue
            truth = telling.truth()
            for image in every_image(telling.state, most):
                self.result.cuts += 1
                self.one(image, truth, f"{moment}.all{most}.{image.mark}")
                if len(self.result.findings) >= MOST_FINDINGS:
                    return

    def one(self, image: Image, truth: Any, at: str, *, again: bool = False) -> None:
        """Judge one image."""
        self.result.distinct += 1
        lay_out(image, self.root)
        try:
            self.look(truth, self.result.distinct, again=again)
        except Exception as problem:  # noqa: BLE001  # whatever goes wrong is a finding
            self._find(at, truth, problem)
        clear(self.root)

    def _find(self, at: str, truth: Any, problem: Exception) -> None:
        if os.environ.get("SHMQ_POWER_TRACE"):
            traceback.print_exception(problem)
        again = f"python -m tests.power.campaign --only '{self.result.name}' --seed {self._seed}"
        again += f" --fault '{self.fault}' --at {at}" if self.fault else f" --at {at}"
        said = f"{type(problem).__name__}: {problem}".replace("\n", " ")[:700]
        self.result.findings.append(f"{self.result.name}, during {truth.doing}: {said}  [{again}]")


class ForwardCutter(Cutter):
    """One history of messages that are forwarded from queue to queue."""

    record = staticmethod(forwarding.record)

    def telling(self) -> Any:
        """What may be true, moment by moment."""
        return forwarding.Telling(self.history)

    def look(self, truth: Any, number: int, *, again: bool) -> None:
        """Judge what was laid out."""
        with forwarding.fault(self.fault):
            forwarding.judge(self.root, truth, self.profile, alone=not again and number % THOROUGH != 0)


class FlowCutter(Cutter):
    """One history of a flow."""

    record = staticmethod(flows.record)

    def telling(self) -> Any:
        """What may be true, moment by moment."""
        return flows.Telling(self.history)

    def random(self, cuts: int) -> None:
        """Some of them when it is over: that is on the disk then, so all that came out must be."""
        at_the_end = cuts // 8
        super().random(cuts - at_the_end)
        telling, moments = self.telling(), len(self.history.events)
        for _ in range(moments):
            telling.step()
        self._at(telling, moments, at_the_end)

    def look(self, truth: Any, number: int, *, again: bool) -> None:  # all moments are alike
        """Judge what was laid out; every so often by real workers."""
        flows.judge(self.root, self.profile, workers=not again and number % THOROUGH == 0)


class ReplicaCutter(Cutter):
    """One history of a queue that follows another one."""

    record = staticmethod(replicas.record)

    def telling(self) -> Any:
        """What may be true, moment by moment."""
        return replicas.Telling(self.history)

    def look(self, truth: Any, number: int, *, again: bool) -> None:  # all are alike
        """Judge what was laid out."""
        replicas.judge(self.root, truth)


class ShardsCutter(Cutter):
    """One history of shards that become more."""

    record = staticmethod(sharded.record)

    def telling(self) -> Any:
        """What may be true, moment by moment."""
        return sharded.Telling(self.history)

    def look(self, truth: Any, number: int, *, again: bool) -> None:  # all are alike
        """Judge what was laid out."""
        sharded.judge(self.root, truth)


CUTTERS: dict[str, tuple[type[Cutter], Any]] = {
    **{each.name: (Cutter, each) for each in workloads.PROFILES},
    **{each.name: (ForwardCutter, each) for each in forwarding.PROFILES},
    **{each.name: (FlowCutter, each) for each in flows.PROFILES},
    **{each.name: (ReplicaCutter, each) for each in replicas.PROFILES},
    **{each.name: (ShardsCutter, each) for each in sharded.PROFILES},
}
"""By the name of a profile: who cuts it, and the profile."""


def run(name: str, seed: int, cuts: int, shim: Shim, **how: Any) -> Result:
    """Record that profile with that seed, and cut it."""
    fault, at, every = how.get("fault", ""), how.get("at"), how.get("every", (0, 0))
    began = time.monotonic()
    kind, profile = CUTTERS[name]
    with scratch() as root:
        place = f"{root}/live"  # for what is recorded and what is laid out: queues may know where others are
        history = kind.record(profile, place, seed, shim, fault)
        clear(place)
        gc.freeze()  # what is there stays; looking for garbage among it takes time
        recorded = time.monotonic()
        cutter = kind(history, profile, seed, place, fault)
        if at:
            cutter.again(at)
        else:
            cutter.random(cuts)
            if every[0]:
                cutter.every(*every)
    cutter.result.recorded = recorded - began
    cutter.result.seconds = time.monotonic() - began
    return cutter.result


def main() -> int:
    """One run; the result as JSON on standard output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("profile")
    parser.add_argument("seed", type=int)
    parser.add_argument("cuts", type=int)
    parser.add_argument("--fault", default="")
    parser.add_argument("--at")
    parser.add_argument("--every", type=int, nargs=2, default=(0, 0))
    given = parser.parse_args()
    result = run(given.profile, given.seed, given.cuts, Shim(), fault=given.fault, at=given.at, every=given.every)
    print(json.dumps(dataclasses.asdict(result)))
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())

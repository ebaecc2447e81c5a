"""
Power cuts by the hundred thousand, in processes of their own.

    python -m tests.power.campaign                             every profile, 300,000 cuts in all, a fresh seed
    python -m tests.power.campaign --cuts 50000000 --jobs 2    the long part
    python -m tests.power.campaign --only NAME --seed S --at M.N   one cut again; its image is kept
    python -m tests.power.campaign --only NAME --fault F       by a library with that fault: must find something
    python -m tests.power.campaign --recoveries 500            recovery itself cut, again and again
    python -m tests.power.campaign --failing                   the k-th system call fails, for every k and errno

A finding is one line that ends with the command that repeats it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import subprocess
import sys
import time
from typing import Any

from .shim import build, environment, scratch, why_not

PER_HISTORY = 1500
"""Cuts in one history: more find less new than another history would."""


@dataclasses.dataclass
class Total:
    """What all runs came to."""

    cuts: int = 0
    distinct: int = 0
    histories: int = 0
    findings: list[str] = dataclasses.field(default_factory=list)

    def add(self, result: dict[str, Any]) -> None:
        """One run more."""
        self.cuts += result["cuts"]
        self.distinct += result["distinct"]
        self.histories += 1
        self.findings += result["findings"]


def child(module: str, built: str, *arguments: object, deadline: float | None = None) -> dict[str, Any]:
    """
    What a process with the shim in front came to.

    Raises:
        RuntimeError: it ended otherwise.
    """
    command = [sys.executable, "-m", f"tests.power.{module}", *map(str, arguments)]
    done = subprocess.run(
        command, env=environment(built), capture_output=True, text=True, check=False, timeout=deadline
    )
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    if done.stderr:
        print(done.stderr, file=sys.stderr, end="")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def names(module: str) -> list[str]:
    """The profiles that it knows."""
    from . import cuts, workloads

    return list(cuts.CUTTERS) if module == "cuts" else [each.name for each in workloads.PROFILES]


def run(chosen: list[str], cuts: int, seed: int, jobs: int, *more: object, module: str = "cuts") -> Total:
    """That many cuts, spread over the profiles and over as many histories as they need."""
    total = Total()
    per_run = min(PER_HISTORY if module == "cuts" else cuts, max(cuts // len(chosen), 1))
    rounds = max(round(cuts / len(chosen) / per_run), 1)
    with scratch() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        built = build(folder)
        runs = [
            pool.submit(child, module, built, name, seed + each, per_run, *more)
            for each in range(rounds)
            for name in chosen
        ]
        try:
            for done in concurrent.futures.as_completed(runs):
                result = done.result()
                for finding in result["findings"]:
                    print("FOUND", finding, flush=True)
                total.add(result)
        finally:
            pool.shutdown(cancel_futures=True)
    return total


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.power.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=300_000)
    parser.add_argument("--seed", type=int, help="of the first history; by default the clock's")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="profiles whose name is, or contains, this")
    parser.add_argument("--at", help="one cut of one history")
    parser.add_argument("--fault", default="", help="what is wrong with the library")
    parser.add_argument("--every", type=int, nargs=2, metavar=("POINTS", "WORDS"), help="all subsets, too")
    parser.add_argument("--recoveries", type=int, default=0, help="cut so many recoveries")
    parser.add_argument("--failing", action="store_true", help="failing system calls instead")
    parser.add_argument("--pairs", type=int, default=0, help="so many runs of failing calls")
    return parser.parse_args()


def main() -> int:
    """Do what was asked; 1 when anything was found."""
    given = _arguments()
    reason = why_not()
    if reason:
        print(f"nothing was cut: {reason}")
        return 2
    seed = int(time.time()) if given.seed is None else given.seed
    began = time.monotonic()
    if given.failing or given.pairs:
        with scratch() as folder:
            more = ["--only", given.only] + (["--pairs", given.pairs, "--seed", seed] if given.pairs else [])
            result = child("failing", build(folder), *more)
        for finding in result["findings"]:
            print("FOUND", finding)
        print(f"failing calls: {result['trials']:,} trials, {len(result['findings'])} findings, seed {seed}")
        return 1 if result["findings"] else 0
    module = "recoveries" if given.recoveries else "cuts"
    known = names(module)
    chosen = [name for name in known if name == given.only] or [name for name in known if given.only in name]
    more = [*(["--fault", given.fault] if given.fault else []), *(["--at", given.at] if given.at else [])]
    more += ["--every", *given.every] if given.every else []
    cuts = 1 if given.at else given.recoveries or given.cuts
    total = run(chosen, cuts, seed, given.jobs, *more, module=module)
    seconds = time.monotonic() - began
    print(
        f"power cuts: {total.cuts:,} in {total.histories} histories, {total.distinct:,} distinct images judged in "
        f"{seconds:.0f} s ({total.cuts / seconds:.0f}/s), seeds from {seed}; {len(total.findings)} findings"
    )
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())

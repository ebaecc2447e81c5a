"""
The long part: larger payloads, all of Python stepped, every state's recovery killed as well, and real kill -9.

    python -m tests.crash.campaign                     all of it: hours
    python -m tests.crash.campaign --only NAME         walks whose name contains NAME
    python -m tests.crash.campaign --pick N            one of the walks, whatever N is
    python -m tests.crash.campaign --only NAME --state N   recover the state of that number alone, and keep it
    python -m tests.crash.campaign --kills 200000      real kills only
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path

from . import scenarios
from .kills import kill
from .walker import Scenario, Tools, Walked, scratch, walk, why_not


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.crash.campaign", description="Every instruction: the long part.")
    parser.add_argument("--only", default="", help="walks whose name contains this")
    parser.add_argument("--state", type=int, help="recover this state alone, and keep it here")
    parser.add_argument("--pick", type=int, help="the one of that number; behind the last comes the first")
    parser.add_argument("--walks", type=int, default=1, help="that one, and so many in all from it on")
    parser.add_argument("--short", action="store_true", help="pytest's scenarios instead of the long ones")
    parser.add_argument("--everything", action="store_true", help="step all of Python, not only the core")
    parser.add_argument("--recoveries", type=int, default=0, help="walk the recovery of so many states of each walk")
    parser.add_argument("--kills", type=int, default=0, help="so many real kills; without --only, nothing else")
    parser.add_argument("--seed", type=int, default=1, help="for the kills")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> list[Scenario]:
    known = scenarios.short() if arguments.short or arguments.state is not None else scenarios.long()
    if arguments.pick is not None:
        return [known[(arguments.pick + each) % len(known)] for each in range(arguments.walks)]
    exact = [each for each in known if each.name == arguments.only]
    return exact or [each for each in known if arguments.only in each.name]


def _recoveries(scenario: Scenario, walked: Walked, tools: Tools, most: int) -> list[Walked]:
    chosen = range(0, len(walked.images), max(len(walked.images) // most, 1))[:most]
    return [walk(scenarios.recoveries(scenario, at), tools, start=walked.images[at]) for at in chosen]


def _again(arguments: argparse.Namespace, tools: Tools) -> Walked | None:
    """Repeat one walk of a recovery, by its name."""
    interrupted, said, state = arguments.only.removeprefix("recovery of ").rpartition(", state ")
    if not said:
        return None
    for scenario in (*scenarios.short(), *scenarios.long()):
        if scenario.name == interrupted:
            image = walk(scenario, tools, keep=True).images[int(state)]
            return walk(scenarios.recoveries(scenario, int(state)), tools, start=image, state=arguments.state)
    return None


def _walks(arguments: argparse.Namespace, tools: Tools) -> list[Walked]:
    again = _again(arguments, tools)
    if again is not None:
        return [again]
    results: list[Walked] = []
    print(f"{'walk':48} {'kill points':>11} {'states':>8} {'seconds':>8}")
    for scenario in _chosen(arguments):
        everything = arguments.everything and not scenario.core
        keep = arguments.recoveries > 0
        found = [walk(scenario, tools, everything=everything, state=arguments.state, keep=keep)]
        if keep:
            found += _recoveries(scenario, found[0], tools, arguments.recoveries)
            found[0].images.clear()
        for each in found:
            outside = f"  {each.outside} changes from outside the core" if each.outside else ""
            print(each.row() + outside, flush=True)
            for finding in each.findings:
                print("FOUND", finding, flush=True)
        results += found
    steps, states = sum(each.steps for each in results), sum(each.states for each in results)
    print(f"{len(results)} walks: {steps:,} kill points, {states:,} distinct states, all recovered", flush=True)
    return results


def main() -> int:
    """Do what was asked; 1 when anything was found."""
    arguments = _arguments()
    reason = why_not()
    if reason:
        print(f"nothing was walked: {reason}")
        return 2
    picked = arguments.pick is not None
    whole = not (arguments.only or arguments.kills or arguments.short or picked)
    if whole:
        arguments.everything, arguments.recoveries, arguments.kills = True, 1_000_000, 200_000
    began = time.monotonic()
    findings: list[str] = []
    if whole or arguments.only or arguments.short or picked:
        with scratch() as folder, contextlib.suppress(KeyboardInterrupt):
            for each in _walks(arguments, Tools(Path(folder))):
                findings += each.findings
    if arguments.kills:
        killed = kill(arguments.kills, arguments.seed)
        for finding in killed.findings:
            print("FOUND", finding)
        findings += killed.findings
        print(
            f"{killed.kills:,} real kills in {killed.seconds:.0f} s: {killed.puts:,} messages had returned, all there"
        )
        print(f"{killed.in_flight:,} more were committed and had not returned")
        print(f"survivors went on within {killed.slowest * 1000:.1f} ms")
    print(f"{len(findings)} findings in {time.monotonic() - began:.0f} s")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

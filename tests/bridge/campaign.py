"""
Bridges and servers are killed at random, and what comes out is held against what went in.

    python -m tests.bridge.campaign [--kills N] [--seed N] [--only redis,nats,mq]     50 kills for each kind
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import brokers  # noqa: E402  # of this folder
from kills import KINDS, kill_at_the_door, kill_either  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="for each kind of server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="redis,nats,mq", help=f"kinds, of {', '.join(KINDS)}, mq")
    given = parser.parse_args()
    kinds = [each for each in given.only.split(",") if each == "mq" or brokers.program(*KINDS[each].programs)]
    if not kinds:
        print(f"none of the servers of {given.only} is here: nothing was killed")
        sys.exit(2)
    total = 0
    for kind in kinds:
        try:
            if kind == "mq":
                done = kill_at_the_door(kills=given.kills, seed=given.seed)
            else:
                done = kill_either(kind, kills=given.kills, seed=given.seed)
        except AssertionError as problem:
            print(
                f"FOUND: {problem}; repeat with: python -m tests.bridge.campaign --kills {given.kills} "
                f"--seed {given.seed} --only {kind}"
            )
            sys.exit(1)
        messages = done.pop("messages")
        total += given.kills
        said = ", ".join(f"{whom} {count}" for whom, count in done.items())
        which = (
            f"mq: {said}"
            if kind == "mq"
            else f"{kind} ({brokers.program(*KINDS[kind].programs)}): {said}: once, in order"
        )
        print(f"{which}: {messages:,} messages")
    print(f"{total:,} kills of bridges and servers")


if __name__ == "__main__":
    main()

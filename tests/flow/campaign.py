"""
Workers of a flow are killed at random, and what comes out is held against what went in.

    python -m tests.flow.campaign [--kills N] [--seed N]          200 kills by default, plain and ordered stages in turn
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from killing import kill_workers  # noqa: E402  # of this folder

AT_ONCE = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    done = {True: 0, False: 0}
    while sum(done.values()) < given.kills:
        ordered = done[True] < done[False]
        kills = min(AT_ONCE, given.kills - sum(done.values()))
        seed = given.seed + sum(done.values())
        with tempfile.TemporaryDirectory() as place:
            try:
                done[ordered] += kill_workers(f"{place}/flow", kills=kills, seed=seed, ordered=ordered)
            except AssertionError as problem:
                print(f"FOUND: {problem}; repeat with: python -m tests.flow.campaign --kills {kills} --seed {seed}")
                sys.exit(1)
    print(f"{sum(done.values())} workers killed, {done[True]} of them in ordered stages: each output once")


if __name__ == "__main__":
    main()

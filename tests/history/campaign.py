"""
Histories by the hundred: `python -m tests.history.campaign --histories 1000 --operations 2000`.

Each history has a seed of its own, which is printed with what is wrong and repeats its dice (though not the machine's).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from tests.history import deaths, judge, record


def run(first_seed: int, histories: int, operations: int, *, quiet: bool = False) -> tuple[record.Figures, list[str]]:
    """Record and judge; (figures, what is wrong with which seed)."""
    total = record.Figures()
    wrong: list[str] = []
    for seed in range(first_seed, first_seed + histories):
        shape = record.Shape.of(seed, operations)
        history, figures, directory = record.record(shape, keep=True)
        found = judge.judge(history)
        total.add(figures)
        if found:
            again = f"python -m tests.history.campaign --histories 1 --operations {operations} --seed {seed}"
            wrong.append("\n  ".join([f"repeat with: {again}   (its words: {directory})", str(shape), *found[:20]]))
            print(wrong[-1], flush=True)
        else:
            shutil.rmtree(directory)
        if not quiet and (seed - first_seed + 1) % 10 == 0:
            print(f"{seed - first_seed + 1} histories, {total.operations:,} operations, {len(wrong)} bad", flush=True)
    return total, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--operations", type=int, default=1000, help="put calls in each history")
    parser.add_argument("--seed", type=int, help="of the first history; by default the clock's")
    parser.add_argument("--deaths", type=int, default=0, help="measure so many deaths as well")
    arguments = parser.parse_args()
    seed = int(time.time()) * 1000 if arguments.seed is None else arguments.seed
    total, wrong = run(seed, arguments.histories, arguments.operations)
    print(f"histories {arguments.histories}, seeds from {seed}; violations {len(wrong)}")
    print(
        f"operations {total.operations:,}; messages {total.messages:,}; deliveries {total.deliveries:,}; "
        f"kills {total.kills:,}; stops {total.stops:,}; padded indexes {total.padded:,}; {total.seconds:.0f} s"
    )
    if arguments.deaths:
        print(deaths.summary(deaths.measure(arguments.deaths)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""
The long share of C5: `python -m tests.model.campaign --executions 1000000000`.

First every small scenario is exhausted and every weakening shown to be caught. Then each large scenario is exhausted as
far as `--seconds` allow; those that were not are drawn at random, in turn, with new seeds, until so many executions
were run in all. Prints a table; ends with exit code 1 and the line that repeats it at the first fault.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from tests.model import explorer

BATCH = 1_000_000  # executions of one scenario before the next has its turn


def tell(result: explorer.Run) -> int:
    """Print what came out; end with the first fault. The executions run."""
    print(result.text, end="", flush=True)
    if result.code == explorer.FAULT:
        sys.exit(1)
    return sum(one.executions for one in result.results)


def weakenings() -> None:
    """A line for each weakened site: who caught it, in which execution. All of them into shown.json."""
    rows = []
    silent = []
    for site, order, ways in explorer.sites():
        for way in ways:
            harmless = explorer.harmless(site, way)
            caught = None if harmless else explorer.caught_by(site, way)
            nobody = "nobody: harmless" if harmless else "nobody"
            by = nobody if caught is None else f"{caught[0]}, execution {caught[1]}"
            print(f"{site:<24} {order:<8} {way:<6} {by}", flush=True)
            if caught is not None:
                rows.append((site, way, caught))
            elif not harmless:
                silent.append(f"{site}={way}")
    explorer.write_shown(rows)
    if silent:
        sys.exit(f"noticed by no schedule: {', '.join(silent)}")


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000_000, help="stop after so many in all")
    parser.add_argument("--seconds", type=float, default=600, help="for exhausting each large scenario")
    parser.add_argument("--shown", action="store_true", help="only look who shows each weakening, and write shown.json")
    parser.add_argument("--seed", type=int, default=1, help="of the first random batch")
    parser.add_argument("--draw", action="store_true", help="only draw large scenarios at random, beginning with any")
    wishes = parser.parse_args()
    if wishes.shown:
        weakenings()
        return
    since = time.monotonic()
    total = 0
    large = explorer.named("LARGE")
    if wishes.draw:
        at = wishes.seed % len(large)
        open_ones = large[at:] + large[:at]
    else:
        total += tell(explorer.run("--litmus", "--small"))
        weakenings()
        open_ones = []
        for name in large:
            result = explorer.run("--scenario", name, "--seconds", str(wishes.seconds))
            total += tell(result)
            if result.code != explorer.EXHAUSTED:
                open_ones.append(name)
    for seed, name in zip(itertools.count(wishes.seed), itertools.cycle(open_ones)):
        if total >= wishes.executions:
            break
        batch = str(min(BATCH, wishes.executions - total))
        total += tell(explorer.run("--scenario", name, "--random", str(seed), "--executions", batch))
    took = time.monotonic() - since
    print(f"{total} executions without a fault in {took:.0f} s, {total / took:.0f}/s")


if __name__ == "__main__":
    main()

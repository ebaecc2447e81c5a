"""
The long proofs, one after the other with fresh seeds, until the time is up: `make campaign HOURS=12`.

    python -m tests.campaign --hours 12 [--only power,fuzz] [--seed S] [--jobs 2]

Each turn runs every campaign for a while, with a seed that was never used before. What a campaign prints goes to
campaign.log; here, one line stands for each that came to its end, and one for each finding, which says how to repeat
it. Exit status 1 when anything was found, or a campaign ended in any other way than it should.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG = "campaign.log"
_SIGNS = ("FOUND", "repeat with:", "Repeat with", "violation", "Traceback", "ERROR: AddressSanitizer", "runtime error:")
_QUIET = ("0 findings", "violations 0")
GRACE = 3600.0
"""Seconds beyond the end that one campaign may still take; then it hangs, and that is a finding."""


@dataclasses.dataclass(frozen=True)
class Campaign:
    """One command: its module and what to tell it, given a seed, the seconds for it, and how many may run at once."""

    name: str
    module: str
    arguments: Callable[[int, float, int], list[object]]


def _power(seed: int, seconds: float, jobs: int) -> list[object]:
    return ["--seed", seed, "--jobs", jobs, "--cuts", max(int(seconds * 150 * jobs), 10_000)]


CAMPAIGNS = (
    Campaign("power", "tests.power.campaign", _power),
    Campaign(
        "recoveries",
        "tests.power.campaign",
        lambda seed, seconds, jobs: [
            "--seed",
            seed,
            "--jobs",
            jobs,
            "--recoveries",
            max(int(seconds * 50 * jobs), 5_000),
        ],
    ),
    Campaign(
        "failing calls",
        "tests.power.campaign",
        lambda seed, seconds, _: ["--seed", seed, "--pairs", max(int(seconds * 20), 500)],
    ),
    Campaign(
        "crash",
        "tests.crash.campaign",
        lambda seed, seconds, _: ["--seed", seed, "--kills", max(int(seconds * 40), 500)],
    ),
    Campaign(
        "history",
        "tests.history.campaign",
        lambda seed, seconds, _: ["--seed", seed, "--histories", max(int(seconds / 2), 10)],
    ),
    Campaign("soak", "tests.history.soak", lambda seed, seconds, _: ["--seed", seed, "--seconds", max(seconds, 30)]),
    Campaign(
        "model",
        "tests.model.campaign",
        lambda seed, seconds, _: [
            "--seed",
            seed,
            "--seconds",
            max(seconds / 10, 20),
            "--executions",
            max(int(seconds * 100_000), 10_000_000),
        ],
    ),
    Campaign(
        "fuzz formats",
        "tests.fuzz.formats",
        lambda seed, seconds, _: ["--plain", "--seed", seed, "--seconds", max(seconds, 30)],
    ),
    Campaign(
        "fuzz native", "tests.fuzz.sanitized", lambda seed, seconds, _: ["--seed", seed, "--seconds", max(seconds, 30)]
    ),
)
"""What each turn runs; the whole of tests.crash.campaign, which has no seed, runs once, before the turns."""


def there(campaigns: tuple[Campaign, ...] = CAMPAIGNS) -> list[Campaign]:
    """Those that this checkout has."""
    return [each for each in campaigns if importlib.util.find_spec(each.module)]


def findings_in(output: str) -> list[str]:
    """The lines that say what was found."""
    lines = (line.strip() for line in output.splitlines())
    return [line for line in lines if any(sign in line for sign in _SIGNS) and not any(q in line for q in _QUIET)]


def one(campaign: Campaign, seed: int, seconds: float, jobs: int, log: TextIO) -> list[str]:
    """Run one campaign; what it found."""
    command = [sys.executable, "-m", campaign.module, *map(str, campaign.arguments(seed, seconds, jobs))]
    said = " ".join(command[1:])
    log.write(f"\n==== python {said}\n")
    log.flush()
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds * 10 + GRACE,
        )
    except subprocess.TimeoutExpired as hung:
        log.write(hung.output if isinstance(hung.output, str) else (hung.output or b"").decode(errors="replace"))
        return [f"{campaign.name}: it hangs  [python {said}]"]
    log.write(done.stdout)
    log.flush()
    if done.returncode == 2 and "nothing was" in done.stdout:
        print(f"{campaign.name}: {done.stdout.strip().splitlines()[-1]}", flush=True)
        return []
    found = [f"{campaign.name}: {line}" for line in findings_in(done.stdout)]
    if done.returncode and not found:
        last = done.stdout.strip().splitlines()[-1:] or ["it said nothing"]
        found = [f"{campaign.name}: it ended with {done.returncode}: {last[0]}  [python {said}]"]
    return found


def turns(campaigns: list[Campaign], hours: float, seed: int) -> Iterator[tuple[Campaign, int, float]]:
    """(campaign, seed, seconds for it), round and round until the time is up; each at least once."""
    end = time.monotonic() + hours * 3600
    share = max(min(hours * 3600 / len(campaigns) / 4, 900.0), 1.0)
    first = True
    while first or time.monotonic() < end:
        for campaign in campaigns:
            if not first and time.monotonic() >= end:
                return
            left = max(end - time.monotonic(), 1.0)
            yield campaign, seed, min(share, left)
            seed += 100_003  # campaigns count up from theirs
        first = False


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--only", default="", help="names of campaigns, with commas between them")
    parser.add_argument("--seed", type=int, help="of the first turn; by default the clock's")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    return parser.parse_args()


def main() -> int:
    """All of them; 1 when anything was found."""
    given = _arguments()
    wanted = {name.strip() for name in given.only.split(",") if name.strip()}
    chosen = [each for each in there() if not wanted or each.name in wanted]
    if not chosen:
        print(f"no such campaign; there are: {', '.join(each.name for each in there())}")
        return 2
    seed = int(time.time()) if given.seed is None else given.seed
    began, found, runs = time.monotonic(), 0, 0
    with open(LOG, "a", encoding="utf-8") as log:
        for campaign, each_seed, seconds in turns(chosen, given.hours, seed):
            at = time.monotonic()
            findings = one(campaign, each_seed, seconds, given.jobs, log)
            for finding in findings:
                print("FOUND", finding, flush=True)
            found += len(findings)
            runs += 1
            verdict = f"{len(findings)} findings" if findings else "nothing found"
            print(f"{campaign.name}, seed {each_seed}: {verdict} in {time.monotonic() - at:.0f} s", flush=True)
    print(f"{runs} runs in {(time.monotonic() - began) / 3600:.2f} h: {found} findings; their words are in {LOG}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""
Cuts the power below real file systems: `make prove-disk`.

    python -m tests.disk.campaign                        200 cuts, on every file system that there is, a fresh seed
    python -m tests.disk.campaign --cuts 2000            more
    python -m tests.disk.campaign --only 'ext4 ordered' --seed S   one file system
    python -m tests.disk.campaign --fault 'no data sync'     a library that forgets: must find something

Root is needed, /dev/fuse, loop devices, and the programs that make file systems; it says which of them are missing, and
does without. A history of real processes cannot be repeated: with the same seed the kernel does something else. So what
is found is kept: the disk as it was cut, and what was told.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.power.shim import scratch

from . import device

PER_HISTORY = 50
"""Cuts in one history, and the recoveries of those."""
SECONDS = 3.0
"""How long the workers work."""


def child(kind: str, seed: int, cuts: int, fault: str = "", seconds: float = SECONDS, keep: str = "") -> dict[str, Any]:
    """
    One history, recorded and cut in namespaces of its own.

    Raises:
        RuntimeError: it ended otherwise.
    """
    words = [sys.executable, "-m", "tests.disk.campaign", "--only", kind, "--seed", str(seed), "--cuts", str(cuts)]
    words += ["--fault", fault, "--seconds", str(seconds), "--keep", keep and str(Path(keep).resolve())]
    limit = {"cwd": Path(__file__).parents[2], "timeout": 600 + cuts * 20}
    with scratch() as root:
        inside = device.inside([*words, "--inside", root])
        done = subprocess.run(inside, stdout=subprocess.PIPE, text=True, check=False, **limit)
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _inside(given: argparse.Namespace) -> int:
    from .cuts import run  # it brings the library along

    kind = next(each for each in device.KINDS if each.name == given.only)
    program = device.build(given.inside)
    how = {"fault": given.fault, "seconds": given.seconds, "keep": given.keep}
    result = run(kind, given.seed, given.cuts, f"{given.inside}/rig", program, **how)
    print(json.dumps(dataclasses.asdict(result)))
    return 0


def there(only: str = "") -> list[device.Kind]:
    """The file systems that can be had here and were asked for; of the others it says why not."""
    found = []
    for kind in device.KINDS:
        if only in kind.name:
            reason = device.lacking(kind)
            if reason:
                print(f"{kind.name} is left out: {reason}", flush=True)
            else:
                found.append(kind)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.disk.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=200, help="in all, spread over the file systems")
    parser.add_argument("--only", default="", help="file systems whose name is, or contains, this")
    parser.add_argument("--seed", type=int, help="of the first history; by default the clock's")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the workers of a history work")
    parser.add_argument("--fault", default="", help="what is wrong with the library")
    parser.add_argument("--keep", default="", help="a folder for the disks with which something was found")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Do what was asked; 1 when anything was found."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was made goes
    if given.inside:
        return _inside(given)
    if given.keep:
        Path(given.keep).mkdir(parents=True, exist_ok=True)
    reason = device.why_not()
    kinds = [] if reason else there(given.only)
    if not kinds:
        print(f"nothing was cut: {reason or 'no file system can be made here'}")
        return 2
    seed = int(time.time()) if given.seed is None else given.seed
    began, totals = time.monotonic(), dict.fromkeys(("cuts", "recoveries", "refused", "writes", "messages"), 0)
    found, histories = 0, 0
    while totals["cuts"] < given.cuts:
        kind = kinds[histories % len(kinds)]
        share = min(PER_HISTORY, -(-given.cuts // len(kinds) * 2 // 3))  # and recoveries make it more
        result = child(kind.name, seed + histories, share, given.fault, given.seconds, given.keep)
        found += len(result["findings"])
        histories += 1
        for name in totals:
            totals[name] += result[name]
        print(
            f"{kind.name}, seed {result['seed']}: {result['cuts']} cuts, {result['recoveries']} of them of recoveries, "
            f"{result['refused']} not mounted, {result['writes']:,} writes, {result['flushes']:,} flushes, "
            f"{result['messages']:,} messages, {result['seconds']:.0f} s, {len(result['findings'])} findings",
            flush=True,
        )
    print(
        f"power cuts below file systems: {totals['cuts']:,} in {histories} histories, {totals['recoveries']:,} of "
        f"recoveries, {totals['refused']} images not mounted, {totals['writes']:,} writes recorded, in "
        f"{time.monotonic() - began:.0f} s, seeds from {seed}; {found} findings"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

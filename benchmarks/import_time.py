"""
What `import shmq` adds to a bare interpreter, beside the modules that rivals need.

Whole processes are timed, interleaved; each import is compared with the bare interpreter of its own round. The bar is
held against processor time: an import waits for nothing, and a busy machine does not lengthen it.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time

from benchmarks import report

BAR_MS = 25.0
MODULES = ("shmq", "multiprocessing", "multiprocessing.queues", "faster_fifo", "zmq")
BARE = "a bare interpreter"


def process(statement: str) -> tuple[float, float]:
    """A fresh interpreter from start to end: wall and processor time, ms."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (time.perf_counter() - began) * 1000, processor * 1000


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="fresh interpreters for each; default: 20")
    parser.add_argument("--bar", action="store_true", help=f"exit 1 when shmq takes {BAR_MS:.0f} ms or more")
    options = parser.parse_args()
    out = report.Report(options, options.directory or ".")
    statements = {BARE: "pass"} | {name: f"import {name}" for name in MODULES}
    for statement in statements.values():
        process(statement)  # compiled and in the page cache from here on
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in statements}
    for _ in range(options.rounds):
        for name, statement in statements.items():
            times[name].append(process(statement))
    rows, processor = [], {}
    for name, mine in times.items():
        less = [(0.0, 0.0)] * len(mine) if name == BARE else times[BARE]
        walls = [one[0] - bare[0] for one, bare in zip(mine, less, strict=True)]
        processor[name] = statistics.median(one[1] - bare[1] for one, bare in zip(mine, less, strict=True))
        rows.append(
            (
                name if name == BARE else f"+ {name}",
                f"{processor[name]:.1f}",
                f"{statistics.median(walls):.1f}",
                report.spread(walls, "{:.1f}"),
            )
        )
    out.data |= {"times": times, "processor": processor}
    title = f"Importing, ms: medians of {options.rounds} fresh interpreters"
    out.table(title, ("", "processor", "wall", "wall: min .. max"), rows)
    out.write()
    return 1 if options.bar and processor["shmq"] >= BAR_MS else 0


if __name__ == "__main__":
    sys.exit(main())

"""
The soak: `python -m tests.history.soak --seconds 60 --producers 4 --consumers 4`.

Producers and consumers put and get while they are killed with kill -9 and started again at random; each consumer has a
name of its own, and one more acknowledges explicitly. At the end everybody drains the queue, and the judge of the
histories looks at every message. Exit status 1 for any violation; a watchdog ends it if it does not end by itself.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import shutil
import signal
import sys
import threading
import time

from tests.history import deaths, judge, record
from tests.support import start

GRACE = 240.0


def watchdog(seconds: float) -> None:
    """End this process group's work whatever happens: a soak that hangs has failed."""

    def bark():
        time.sleep(seconds)
        print(f"the soak has not ended after {seconds:.0f} s: it hangs", flush=True)
        faulthandler.dump_traceback(all_threads=True)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    def watch():
        parent = os.getppid()
        threading.Thread(target=bark, daemon=True).start()
        while os.getppid() == parent:
            time.sleep(0.2)

    os.setpgid(0, 0)
    start(watch)  # a process: it barks even if this one is stuck in a call


def soak(shape: record.Shape) -> int:
    """Run it, print the table; the exit status."""
    history, figures, directory = record.record(shape, keep=True)
    found = judge.judge(history)
    returned = sum(len(put.sent) for put in history.puts if put.outcome == "ok")
    log = {value: index for index, value, _ in history.log}
    lost = sum(put.outcome == "ok" and value not in log for put in history.puts for value, _ in put.sent)
    print(f"{'put returned':<22}{returned:>12,}")
    print(f"{'in the queue':<22}{len(log):>12,}   (the rest: puts that were in when their producer was killed)")
    print(f"{'padded indexes':<22}{figures.padded:>12,}")
    for name, operations in history.names.items():
        seen = [value for one in operations for _, value, _ in one.seen]
        once = len(set(seen))
        flight = sum(one.verb in judge.GETS and one.end is None for one in operations)
        print(f"{'seen by ' + name:<22}{once:>12,}   again {len(seen) - once:,}; gets cut by a kill {flight}")
    print(f"{'lost':<22}{lost:>12,}")
    beyond = sum("came again" in line or "twice" in line for line in found)
    print(f"{'doubled beyond promise':<22}{beyond:>12,}")
    print(f"{'kills':<22}{figures.kills:>12,}")
    print(f"{'hangs':<22}{sum(line.startswith('hang') for line in found):>12,}")
    print(
        f"{'longest pause':<22}{figures.longest_pause_s:>10.3f} s   (of a name, its own deaths and restarts included)"
    )
    print(f"{'violations':<22}{len(found):>12,}")
    for line in found[:50]:
        print(f"  {line}")
    if found:
        print(f"seed {shape.seed}; the words of all processes are in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000)
    parser.add_argument("--chunk-bytes", type=int, default=256 << 10)
    parser.add_argument("--kill-every", type=float, default=0.1, help="seconds between two kills, on average")
    parser.add_argument("--pause", type=float, default=0.001, help="how long producers pause at most, a tenth of it")
    parser.add_argument("--large", type=int, default=2000, help="bytes of the largest messages")
    parser.add_argument("--deaths", type=int, default=100, help="measure so many deaths afterwards")
    arguments = parser.parse_args()
    watchdog(arguments.seconds * 3 + GRACE)
    print(
        f"{arguments.seconds:.0f} s, {arguments.producers} producers, {arguments.consumers} consumers and one with "
        f"explicit acks, seed {arguments.seed}",
        flush=True,
    )
    status = soak(
        record.Shape(
            arguments.seed,
            seconds=arguments.seconds,
            producers=arguments.producers,
            autos=arguments.consumers,
            explicits=1,
            chunk_bytes=arguments.chunk_bytes,
            pause=arguments.pause,
            large=arguments.large,
            kill_every=arguments.kill_every,
            stop_every=0.5,
            die_in_claim=0.001,
        )
    )
    if arguments.deaths:
        print(deaths.summary(deaths.measure(arguments.deaths)))
    return status


if __name__ == "__main__":
    sys.exit(main())

"""
shmq beside its rivals, in under a minute.

One producer process, one consumer process. Every round runs every rival once, in turn, so that what disturbs the
machine disturbs all; figures are medians of the rounds, ratios are medians of the ratios within a round. shmq carries
checksums and timestamps, keeps what it carried, and survives kill -9; the others do none of this.

What the other verbs of shmq cost beside take stands below it, in short; all of them are in verbs.py.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks import report, trial, verbs
from benchmarks.peers import PEERS, MultiprocessingQueue, Shmq, Zmq

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Channel

BARS = {Zmq.label: 2.0, MultiprocessingQueue.label: 10.0}
SMALL, LARGE, BATCH = 64, 1 << 20, 100
LARGE_COUNT, TRIPS = 100, 1500
VERBS_COUNT, VERBS_ROUNDS = 20_000, 3
PROCESSORS = sorted(os.sched_getaffinity(0))
"""Where the ends of a round trip stay; left to the scheduler, their places make more difference than the rival."""
TRIP_SCENES = ("apart", "together")


def one_by_one(peer: type[Channel], place: str) -> float:
    """Messages per second, one call each."""
    return trial.rate(peer, place, size=SMALL, count=peer.messages)


def in_batches(peer: type[Channel], place: str) -> float:
    """Messages per second, 100 at a time."""
    return trial.rate(peer, place, size=SMALL, count=peer.messages * 2, batch=BATCH)


def large(peer: type[Channel], place: str) -> float:
    """GiB per second in messages of 1 MiB."""
    return trial.rate(peer, place, size=LARGE, count=LARGE_COUNT) * LARGE / (1 << 30)


def round_trip(peer: type[Channel], place: str, processors: tuple[int, int]) -> float:
    """Microseconds there and back, p50, with the two processes on these processors."""
    trips = trial.round_trips(peer, place, size=SMALL, count=TRIPS, processors=processors)
    return trial.percentile(trips, 0.5) / 1000


def together(peer: type[Channel], place: str) -> float:
    """Both on one processor."""
    return round_trip(peer, place, (PROCESSORS[0], PROCESSORS[0]))


def apart(peer: type[Channel], place: str) -> float:
    """Each on one of its own."""
    return round_trip(peer, place, (PROCESSORS[0], PROCESSORS[-1]))


SCENES: dict[str, tuple[str, str, str, Callable[[type[Channel], str], float]]] = {
    "one": ("64-byte messages, one call each", "messages/s", "{:,.0f}", one_by_one),
    "batch": ("64-byte messages, 100 per call", "messages/s", "{:,.0f}", in_batches),
    "apart": ("Round trip of 64 bytes between two processes on two processors, p50", "µs", "{:,.1f}", apart),
    "together": ("Round trip of 64 bytes between two processes on one processor, p50", "µs", "{:,.1f}", together),
    "large": ("1 MiB messages, for information", "GiB/s", "{:,.2f}", large),
}


def measure(rounds: int, directory: str) -> dict[str, dict[str, list[float]]]:
    """All figures: scene, rival, one value a round."""
    found: dict[str, dict[str, list[float]]] = {scene: {} for scene in SCENES}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds} ...", end="\r", file=sys.stderr, flush=True)
        for scene, (*_, run) in SCENES.items():
            if scene == "apart" and len(PROCESSORS) == 1:
                continue
            for peer in PEERS[number % len(PEERS) :] + PEERS[: number % len(PEERS)]:
                if scene != "batch" or peer.batches:
                    value = run(peer, f"{directory}/{scene}")
                    found[scene].setdefault(peer.label, []).append(value)
    return found


def ratio(scene: str, figures: dict[str, list[float]], label: str) -> float:
    """How many times better shmq is than that rival."""
    ours, theirs = figures[Shmq.label], figures[label]
    return report.median_ratio(theirs, ours) if scene in TRIP_SCENES else report.median_ratio(ours, theirs)


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--bar", action="store_true", help="exit 1 below 2x pyzmq or 10x multiprocessing.Queue")
    options = parser.parse_args()
    began = time.monotonic()
    with trial.workplace(options.directory) as directory:
        out = report.Report(options, directory)
        versions = {peer.label: peer.version() for peer in PEERS}
        out.say("; ".join(f"{label} {version}" for label, version in versions.items()))
        found = measure(options.rounds, directory)
    out.data |= {"versions": versions, "rounds": options.rounds, "figures": found, "ratios": {}}
    for scene, (title, unit, form, _) in SCENES.items():
        if not found[scene]:
            continue
        figures: dict[str, list[float]] = {
            peer.label: found[scene][peer.label] for peer in PEERS if peer.label in found[scene]
        }
        ratios = {label: ratio(scene, figures, label) for label in figures}
        out.data["ratios"][scene] = ratios
        rows: list[Any] = [
            (label, form.format(statistics.median(values)), report.spread(values, form), f"{ratios[label]:.2f}x")
            for label, values in figures.items()
        ]
        out.table(title, ("", unit, "min .. max", "shmq is"), rows)
    with trial.workplace("/dev/shm") as place:
        costs = verbs.measure(verbs.SHORT, place, VERBS_COUNT, VERBS_ROUNDS)
    out.data["verbs"] = costs
    out.table(verbs.title(VERBS_ROUNDS), verbs.HEADS, verbs.rows(costs))
    failed = [label for label, bar in BARS.items() if out.data["ratios"]["one"][label] < bar]
    told = ", ".join(
        f"{out.data['ratios']['one'][label]:.1f}x {label} (bar: {bar:.0f}x)" for label, bar in BARS.items()
    )
    print()
    out.say(f"One call each, shmq is {told}. Took {time.monotonic() - began:.0f} s, {options.rounds} rounds.")
    out.write()
    return 1 if options.bar and failed else 0


if __name__ == "__main__":
    sys.exit(main())

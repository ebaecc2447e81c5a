"""
Every size, from 64 bytes to 16 MiB, beside whoever is fastest at it.

A queue as it comes and one with a bound, in memory and on the disk. Rivals that are not installed are left out. Every
round runs each once, in turn; figures are medians of the rounds, and what shmq is beside the best rival is the median
of the ratios within a round.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import report, trial
from benchmarks.peers import FasterFifo, HyperQ, Shmq, ShmqInMemory, ZeroQ, Zmq

if TYPE_CHECKING:
    from benchmarks.peers import Channel

BOUND = 16 << 20


class Size(NamedTuple):
    """Messages of so many bytes, and how many of them make a trial."""

    label: str
    size: int
    count: int


SIZES = (
    Size("64 B", 64, 500_000),
    Size("1 KiB", 1 << 10, 150_000),
    Size("4 KiB", 4 << 10, 100_000),
    Size("64 KiB, 400 MB", 64 << 10, 6_100),
    Size("64 KiB, 2.6 GB", 64 << 10, 40_000),
    Size("1 MiB", 1 << 20, 1_000),
    Size("16 MiB", 16 << 20, 64),
)


class Bounded(Shmq):
    """With a bound of 16 MiB, or of three messages."""

    label = "shmq, disk, bound"

    def _open(self):
        import shmq

        return shmq.open(self.place, options=shmq.Options(max_bytes=max(BOUND, 3 * self.size)))


class BoundedInMemory(Bounded, ShmqInMemory):
    """The same on a file system in memory."""

    label = "shmq, shm, bound"


class OnDisk(Shmq):
    """As it comes."""

    label = "shmq, disk"


class InMemory(ShmqInMemory):
    """As it comes, on a file system in memory."""

    label = "shmq, shm"


OURS: tuple[type[Channel], ...] = (InMemory, BoundedInMemory, OnDisk, Bounded)
THEIRS: dict[str, type[Channel]] = {"zeroq": ZeroQ, "hyperq": HyperQ, "zmq": Zmq, "faster_fifo": FasterFifo}


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--sizes", default="", help="only those whose name contains one of these, with slashes between")
    parser.add_argument("--ours", default="", help="only those of our ways, likewise")
    parser.add_argument("--alone", action="store_true", help="without rivals")
    options = parser.parse_args()
    theirs = [] if options.alone else [each for name, each in THEIRS.items() if importlib.util.find_spec(name)]
    ours = [each for each in OURS if not options.ours or each.label in options.ours.split("/")]
    sizes = [each for each in SIZES if any(part in each.label for part in options.sizes.split("/"))]
    peers = [*ours, *theirs]
    found: dict[str, dict[str, list[float]]] = {size.label: {peer.label: [] for peer in peers} for size in sizes}
    with trial.workplace(options.directory) as directory:
        out = report.Report(options, directory)
        out.say("; ".join(f"{peer.label} {peer.version()}" for peer in [Shmq, *theirs]))
        for number in range(options.rounds):
            for size in sizes:
                turn = number % len(peers)
                for peer in peers[turn:] + peers[:turn]:
                    rate = trial.rate(peer, f"{directory}/sizes", size=size.size, count=size.count)
                    found[size.label][peer.label].append(rate * size.size / 1e9)
    rows = [[size.label, *(_cell(found[size.label], peer, ours, theirs) for peer in peers)] for size in sizes]
    out.table("GB/s by size, and beside the best rival", ["", *(peer.label for peer in peers)], rows)
    out.data |= {"figures": found, "rounds": options.rounds}
    out.write()
    return 0


def _cell(
    figures: dict[str, list[float]], peer: type[Channel], ours: list[type[Channel]], theirs: list[type[Channel]]
) -> str:
    """The median, and of one of ours what it is beside the best rival in the same round."""
    rates = figures[peer.label]
    told = f"{statistics.median(rates):.2f}"
    if peer not in ours:
        return told
    if not theirs:
        return f"{told} ({report.spread(rates, '{:.2f}')})"
    best = [max(round_) for round_ in zip(*(figures[each.label] for each in theirs), strict=True)]
    return f"{told} ({report.median_ratio(rates, best):.2f}x)"


if __name__ == "__main__":
    sys.exit(main())

"""
1, 2, 4 and 8 producers and as many workers, all on one queue: what it carries in total.

    python -m benchmarks.pairs [--messages 200000] [--rounds 3]

Each producer puts 64-byte messages, one call each, and the workers share them: in shmq a group with explicit
acknowledgements, as in sharing.py, which says how it is judged. A queue that takes turns badly carries less the more
there are; the bar is that the total is never below that of one pair. Where there are fewer processors than processes,
they also take turns on those, which no queue can help: then stands beside it how often a message let somebody sleep.
"""

from __future__ import annotations

import functools
import itertools
import resource
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from benchmarks import report, trial
from benchmarks.peers import FORK, FasterFifo, MultiprocessingQueue, ShmqInMemory
from benchmarks.sharing import SIZE, group, one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Channel

PAIRS = (1, 2, 4, 8)
END = b"end"
PEERS: dict[str, tuple[type[Channel], Any]] = {
    "shmq": (ShmqInMemory, group),
    "faster-fifo": (FasterFifo, one_by_one),
    "multiprocessing.Queue": (MultiprocessingQueue, one_by_one),
}


class Total(NamedTuple):
    """Messages a second of all together, and of each message processor ns and switches to somebody else."""

    rate: float
    processor: float
    switches: float


def used() -> tuple[float, int]:
    """Processor ns of this process, and how often it gave its processor away by itself."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return (own.ru_utime + own.ru_stime) * 1e9, own.ru_nvcsw


def put(channel: Channel, count: int, together: Any, done: Any) -> tuple[int, float, int]:
    """Its share of them, and an end."""
    end = channel.sender()
    messages = trial.payloads(SIZE)
    together.wait()
    began, (processor, switches) = time.monotonic_ns(), used()
    for message in itertools.islice(itertools.cycle(messages), count):
        end.one(message)
    after = used()
    if not isinstance(channel, ShmqInMemory):
        end.one(END)  # behind its own messages; and the last end of all is behind all of them
    elif done.wait() == 0:
        with shmq.open(channel.place) as queue:
            queue.shutdown()
    end.close()
    return began, after[0] - processor, after[1] - switches


def work(channel: Channel, working: Any, together: Any) -> tuple[int, int, int, float, int]:
    """What one worker had, of how many bytes, until when, and what it used."""
    before = (0.0, 0)

    def ready() -> None:
        nonlocal before
        together.wait()
        before = used()

    had, size = working(channel, ready)
    ended, after = time.monotonic_ns(), used()
    return had, size, ended, after[0] - before[0], after[1] - before[1]


def total(label: str, place: str, *, count: int, pairs: int) -> Total:
    """One trial: so many messages through so many pairs."""
    peer, working = PEERS[label]
    channel = peer(place, SIZE, 1)
    share = count // pairs
    together, done = FORK.Barrier(2 * pairs), FORK.Barrier(pairs)
    putting: Callable[[], Any] = functools.partial(put, channel, share, together, done)
    taking: Callable[[], Any] = functools.partial(work, channel, working, together)
    try:
        answers = trial.in_processes(*[putting] * pairs, *[taking] * pairs)
    finally:
        channel.remove()
    puts, takes = answers[:pairs], answers[pairs:]
    if (sum(each[0] for each in takes), sum(each[1] for each in takes)) != (share * pairs, share * pairs * SIZE):
        raise AssertionError(f"{label}: the workers had {sum(each[0] for each in takes)} of {share * pairs} messages")
    seconds = (max(each[2] for each in takes) - min(each[0] for each in puts)) / 1e9
    processor = sum(each[-2] for each in answers) / (share * pairs)
    return Total(share * pairs / seconds, processor, sum(each[-1] for each in answers) / (share * pairs))


def row(pairs: int, found: dict[str, list[Total]], one: dict[str, list[Total]]) -> list[str]:
    """Of each its total, and beside that of one pair in the same round."""
    cells = [str(pairs)]
    for label in PEERS:
        rates, alone = ([each.rate for each in some[label]] for some in (found, one))
        cells.append(f"{statistics.median(rates):,.0f} ({report.median_ratio(rates, alone):.2f}x)")
    mine = found["shmq"]
    cells.append(f"{statistics.median(each.processor for each in mine):,.0f}")
    cells.append(f"{statistics.median(each.switches for each in mine):.4f}")
    return cells


def main() -> None:
    parser = report.arguments(__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="of a trial; default: 200000; shmq: times 5")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    options = parser.parse_args()
    found: dict[int, dict[str, list[Total]]] = {pairs: {label: [] for label in PEERS} for pairs in PAIRS}
    with trial.workplace(options.directory) as place:
        out = report.Report(options, "/dev/shm")
        for number, pairs in itertools.product(range(options.rounds), PAIRS):
            turn = number % len(PEERS)
            labels = list(PEERS)
            for label in labels[turn:] + labels[:turn]:
                many = options.messages * (5 if label == "shmq" else 1)
                found[pairs][label].append(total(label, f"{place}/q", count=many, pairs=pairs))
    rows = [row(pairs, found[pairs], found[1]) for pairs in PAIRS]
    heads = ["producers and workers", *PEERS, "shmq: processor ns", "sleeps a message"]
    out.table("So many producers and as many workers: messages a second in total, beside one pair", heads, rows)
    out.data |= {"rounds": options.rounds, "figures": {str(pairs): some for pairs, some in found.items()}}
    out.write()


if __name__ == "__main__":
    main()

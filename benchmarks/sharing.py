"""
One producer and 1, 2 and 4 workers that share its messages, beside faster-fifo and multiprocessing.Queue.

    python -m benchmarks.sharing [--messages 100000] [--rounds 5]

The producer puts 64-byte messages while the workers work them off: one call each; 64 a call; or lists of 64, which all
carry as one message each (by msgpack in shmq, which reads nothing that could run code, by pickle in the others).

The workers of shmq are a group with explicit acknowledgements: what a killed one had goes to the others, and every
message stays in the queue until it is acknowledged. What a killed worker had from a rival is lost. Every worker reads
the bytes of every message; a trial in which one is missing, or comes twice, fails. Time runs from the first put until
every worker has met the end. Rounds are interleaved, as in quick.py. Groups beside Redis Streams: groups.py.

Beside messages a second, which the load of the machine lowers, stands the processor time of both sides, which it hardly
changes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from benchmarks import report, trial
from benchmarks.peers import FORK, FasterFifo, MultiprocessingQueue, ShmqInMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Channel

SIZE, BATCH = 64, 64
WORKERS = (1, 2, 4)
_END = b"end"


class ShmqLists(ShmqInMemory):
    """A queue whose messages are lists."""

    def _open(self) -> Any:
        return shmq.open(self.place, codec="msgpack")


class FasterFifoLists(FasterFifo):
    """faster-fifo as it comes, with pickles."""

    def __init__(self, place: str, size: int, batch: int) -> None:
        """Only what it carries differs."""
        super().__init__(place, size, batch)
        import faster_fifo

        self._queue = faster_fifo.Queue(max_size_bytes=self.room)


# ---------------------------------------------------------------- the workers
def group(channel: ShmqInMemory, ready: Callable[[], Any]) -> tuple[int, int]:
    """A member of a group: how many messages it had, and of how many bytes."""
    count = size = 0
    with shmq.open(channel.place) as queue, queue.consumer("workers", group=True, ack="explicit") as member:
        get, get_many, ack = member.get, member.get_many, member.ack
        ready()
        with contextlib.suppress(shmq.ShutDown):
            while isinstance(channel, ShmqLists):
                message = get()
                for each in message.payload:
                    size += len(each)
                    count += 1
                message.ack()
            while channel.batch == 1:
                message = get()
                size += len(message.payload)
                message.ack()
                count += 1
            while True:
                messages = get_many(BATCH)
                for message in messages:
                    size += len(message.payload)
                ack(*messages)
                count += len(messages)
    return count, size


def one_by_one(channel: Channel, ready: Callable[[], Any]) -> tuple[int, int]:
    """A rival's worker, one call each."""
    count = size = 0
    get = channel.taker().one
    ready()
    while (length := len(get())) == SIZE:
        size += length
        count += 1
    return count, size


def in_batches(channel: FasterFifo, ready: Callable[[], Any]) -> tuple[int, int]:
    """A worker of faster-fifo, which gives back the ends of others that it was handed."""
    count = size = 0
    get_many: Any = channel.taker().many
    ready()
    while True:
        messages = get_many()
        for message in messages:
            size += len(message)
        count += len(messages)
        if ends := messages.count(_END):
            _end(channel, ends - 1)
            return count - ends, size - ends * len(_END)


def in_lists(channel: Channel, ready: Callable[[], Any]) -> tuple[int, int]:
    """A rival's worker, to which a list of 64 is one message."""
    count = size = 0
    get = channel.taker().one
    ready()
    while (messages := get()) != _END:
        for message in messages:
            size += len(message)
        count += len(messages)
    return count, size


# ---------------------------------------------------------------- the producer
class Trial(NamedTuple):
    """Messages a second, and the processor ns a message of the producer and of all workers together."""

    rate: float
    producer: float
    workers: float


def put(channel: Channel, count: int, workers: int, ready: Callable[[], Any]) -> tuple[int, int]:
    """All of them, and their end: when it began, and the processor time it took."""
    end = channel.sender()
    lists = isinstance(channel, (ShmqLists, FasterFifoLists, MultiprocessingQueue))
    send: Any = end.one if lists or channel.batch == 1 else end.many
    messages: list[Any] = trial.payloads(SIZE)
    if channel.batch > 1:
        messages = [messages[at : at + BATCH] for at in range(0, len(messages) // BATCH * BATCH, BATCH)]
    ready()
    began, used = time.monotonic_ns(), time.process_time_ns()
    for message in itertools.islice(itertools.cycle(messages), count // channel.batch):
        send(message)
    if isinstance(channel, ShmqInMemory):
        with shmq.open(channel.place) as queue:
            queue.shutdown()
    else:
        _end(channel, workers)
    end.close()
    return began, time.process_time_ns() - used


def _end(channel: Channel, workers: int) -> None:
    for _ in range(workers):
        channel.sender().one(_END)


def trial_of(peer: type[Channel], work: Any, place: str, *, count: int, workers: int, batch: int) -> Trial:
    """So many workers work off so many messages."""
    channel = peer(place, SIZE, batch)
    together = FORK.Barrier(workers + 1)

    def worked() -> tuple[int, int, int, int]:
        used = 0

        def ready() -> None:
            nonlocal used
            together.wait()
            used = time.process_time_ns()

        had, size = work(channel, ready)
        return had, size, time.monotonic_ns(), time.process_time_ns() - used

    try:
        (began, used), *done = trial.in_processes(
            functools.partial(put, channel, count, workers, together.wait), *[worked] * workers
        )
    finally:
        channel.remove()
    had, sizes, ended, workers_used = zip(*done, strict=True)
    if (sum(had), sum(sizes)) != (count, count * SIZE):
        raise AssertionError(f"{peer.label}: the workers had {had} of {count} messages")
    return Trial(count / (max(ended) - began) * 1e9, used / count, sum(workers_used) / count)


# ---------------------------------------------------------------- the table
SCENES: dict[str, dict[str, tuple[type[Channel], Any]]] = {
    "1": {
        "shmq": (ShmqInMemory, group),
        "faster-fifo": (FasterFifo, one_by_one),
        "multiprocessing.Queue": (MultiprocessingQueue, one_by_one),
    },
    "64": {"shmq": (ShmqInMemory, group), "faster-fifo": (FasterFifo, in_batches)},
    "a list of 64": {
        "shmq": (ShmqLists, group),
        "faster-fifo": (FasterFifoLists, in_lists),
        "multiprocessing.Queue": (MultiprocessingQueue, in_lists),
    },
}
"""What one call carries, by whom, and how it is worked off."""

_TIMES = {"1": 1, "64": 4, "a list of 64": 10}
"""How many times as many messages make a trial."""

NAMES = tuple(SCENES["1"])

Figures = dict[str, dict[int, dict[str, list[Trial]]]]


def measure(place: str, count: int, rounds: int) -> Figures:
    """Scene, workers, rival: one trial a round."""
    found: Figures = {}
    for number in range(rounds):
        for scene, rivals in SCENES.items():
            many, batch = count * _TIMES[scene] // BATCH * BATCH, 1 if scene == "1" else BATCH
            turns = list(rivals.items())
            for workers in WORKERS:
                for label, (peer, work) in turns[number % len(turns) :] + turns[: number % len(turns)]:
                    one = trial_of(peer, work, f"{place}/q", count=many, workers=workers, batch=batch)
                    found.setdefault(scene, {}).setdefault(workers, {}).setdefault(label, []).append(one)
    return found


def rows(found: Figures, cells: Callable[[dict[str, list[Trial]]], list[str]]) -> list[list[str]]:
    """One for each scene and number of workers."""
    table = []
    for scene, trials in found.items():
        table += [[scene, str(workers), *cells(figures)] for workers, figures in trials.items()]
    return table


def rates(figures: dict[str, list[Trial]]) -> list[str]:
    """Medians, and how many times as much as each rival shmq carries."""
    ours = [each.rate for each in figures["shmq"]]
    cells = [f"{statistics.median(ours):,.0f}", report.spread(ours)]
    for label in NAMES[1:]:
        theirs = [each.rate for each in figures.get(label, ())]
        ratio = f"{report.median_ratio(ours, theirs):.2f}x" if theirs else ""
        cells += [f"{statistics.median(theirs):,.0f}" if theirs else "", ratio]
    return cells


def costs(figures: dict[str, list[Trial]]) -> list[str]:
    """Medians of the producer and of the workers."""
    cells = []
    for label in NAMES:
        some = figures.get(label, [])
        cells.append(" + ".join(f"{statistics.median(side):,.0f}" for side in list(zip(*some, strict=True))[1:]))
    return cells


def main() -> None:
    parser = report.arguments(__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="of a trial; more in batches")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    options = parser.parse_args()
    with trial.workplace(options.directory) as place:
        out = report.Report(options, "/dev/shm")
        found = measure(place, options.messages, options.rounds)
    out.data |= {"rounds": options.rounds, "figures": found}
    heads = ["a call carries", "workers", "shmq", "min .. max"]
    for label in NAMES[1:]:
        heads += [label, "shmq is"]
    out.table("One producer, so many workers: messages a second", heads, rows(found, rates))
    out.table(
        "The same: processor ns a message, of the producer + of all workers together",
        ["a call carries", "workers", *NAMES],
        rows(found, costs),
    )
    out.write()


if __name__ == "__main__":
    main()

"""
Messages of 1 MiB beside pyzmq, from bytes to bytes and without copies, with what they cost both processes together.

Queues are bounded, since a queue without a bound that its consumer cannot follow goes on to memory that nobody has
touched, while a socket makes its sender wait; one without a bound stands beside them. What is sent comes from eleven
buffers of 1 MiB. Every round runs each once, in turn; figures are medians of the rounds.
"""

from __future__ import annotations

import functools
import resource
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import report, trial
from benchmarks.peers import End, Shmq, ShmqInMemory, Zmq

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Channel

SIZE, COUNT = 1 << 20, 1000
BOUND = 16 << 20


class Cost(NamedTuple):
    """What a message of 1 MiB took: GiB/s, and of both processes processor time in µs and page faults."""

    rate: float
    processor: float
    faults: float


class Bounded(Shmq):
    """On disk, as it comes, but for the bound."""

    label = "shmq"

    def _open(self) -> Any:
        import shmq

        return shmq.open(self.place, options=shmq.Options(max_bytes=BOUND))


class BoundedInMemory(Bounded, ShmqInMemory):
    """The same on a file system in memory."""

    label = "shmq on /dev/shm"


class Unbounded(ShmqInMemory):
    """Without a bound."""

    label = "shmq on /dev/shm, no bound"


class Viewed(BoundedInMemory):
    """Filled where it will lie, and looked at where it lies; checked all the same."""

    label = "shmq on /dev/shm, reserve and view"

    def sender(self) -> End:
        """Fills what it reserved."""
        queue = self._open()
        producer = queue.producer()

        def send(message: bytes) -> None:
            with producer.reserve(len(message)) as slot:
                slot.buffer[:] = message

        return End(send, producer.put_many, queue.close)

    def taker(self) -> End:
        """Gives views."""
        queue = self._open()
        consumer = queue.consumer("bench")

        def close() -> None:
            consumer.close()
            queue.close()

        return End(lambda: consumer.get().view, None, close)


class ZmqBytes(Zmq):
    """From bytes to bytes."""

    label = "pyzmq, bytes"

    def sender(self) -> End:
        """It copies."""
        socket, close = self._socket("PUSH")
        socket.connect(f"ipc://{self.place}")
        return End(socket.send, None, close)

    def taker(self) -> End:
        """It copies."""
        socket, close = self._socket("PULL")
        socket.bind(f"ipc://{self.place}")
        return End(socket.recv, None, close)


class ZmqViews(Zmq):
    """Without copies."""

    label = "pyzmq, copy=False"


class ZmqToBytes(ZmqBytes):
    """Sent without a copy, taken as bytes: its best way from bytes to bytes."""

    label = "pyzmq, bytes, sent with copy=False"

    def sender(self) -> End:
        """It does not copy."""
        socket, close = self._socket("PUSH")
        socket.connect(f"ipc://{self.place}")
        return End(functools.partial(socket.send, copy=False), None, close)


OURS: tuple[type[Channel], ...] = (BoundedInMemory, Bounded, Unbounded, Viewed)
THEIRS: tuple[type[Channel], ...] = (ZmqBytes, ZmqToBytes, ZmqViews)


def cost(peer: type[Channel], place: str, count: int) -> Cost:
    """One trial."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    rate = trial.rate(peer, place, size=SIZE, count=count)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(rate * SIZE / (1 << 30), seconds / count * 1e6, (after.ru_minflt - before.ru_minflt) / count)


def per_mib(work: Callable[[int], Any], count: int = 300) -> float:
    """Processor time of a call, in µs: the median."""
    times = []
    for number in range(count):
        began = time.thread_time_ns()
        work(number)
        times.append(time.thread_time_ns() - began)
    return statistics.median(times) / 1000


def memory() -> list[tuple[str, str]]:
    """What this machine's memory takes for 1 MiB, in one process that has touched it all before."""
    from shmq import _native

    source = [bytes([number]) * SIZE for number in range(11)]
    rows = []
    for room in (1, 8, 24, 64):
        target = memoryview(bytearray(room * SIZE))

        def copy(number: int, room: int = room, target: memoryview = target) -> None:
            at = number % room * SIZE
            target[at : at + SIZE] = source[number % 11]

        rows.append((f"memcpy from 11 MiB into {room} MiB", f"{per_mib(copy):.0f}"))
    rows.append(("CRC-32C", f"{per_mib(lambda number: _native.crc32c(source[number % 11])):.0f}"))
    return rows


def main() -> int:
    parser = report.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--count", type=int, default=COUNT, help=f"messages of each trial (default: {COUNT})")
    options = parser.parse_args()
    peers = OURS + THEIRS
    found: dict[str, list[Cost]] = {peer.label: [] for peer in peers}
    with trial.workplace(options.directory) as directory:
        out = report.Report(options, directory)
        out.table("1 MiB in one process, processor time", ("", "µs"), memory())
        for number in range(options.rounds):
            turn = number % len(peers)
            for peer in peers[turn:] + peers[:turn]:
                found[peer.label].append(cost(peer, f"{directory}/large", options.count))
    rates = {label: [each.rate for each in costs] for label, costs in found.items()}
    heads = ["", "GiB/s", "min .. max", "processor µs a message", "faults a message"]
    rows = [
        [
            label,
            f"{statistics.median(rates[label]):.2f}",
            report.spread(rates[label], "{:.2f}"),
            f"{statistics.median(each.processor for each in costs):.0f}",
            f"{statistics.median(each.faults for each in costs):.0f}",
            *(f"{report.median_ratio(rates[label], rates[peer.label]):.2f}x" for peer in THEIRS),
        ]
        for label, costs in found.items()
    ]
    out.table("Messages of 1 MiB", [*heads, *(f"to {peer.label}" for peer in THEIRS)], rows)
    out.data |= {"figures": found, "rounds": options.rounds}
    out.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())

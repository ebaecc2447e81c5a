"""
What a message costs by each verb, in ns, beside `take`: one process, 64-byte messages, a queue in memory.

    python -m benchmarks.verbs [--count 50000] [--rounds 5]
    python -m benchmarks.verbs --size 4096 --count 20000  what a byte costs: beside the first run

Each row is timed as it is shown, its loop included, with the garbage collector on, as in a program. A verb that reads
has a queue of its own in which the messages stand already; one that puts has an empty one, so that chunks and the
faults of their pages are part of it. It is processor time, which the load of the machine does not lengthen: nobody
waits here. Figures are medians of the rounds, ratios are medians of the ratios within a round.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
import timeit
from typing import TYPE_CHECKING, NamedTuple

import shmq
from benchmarks import report, trial

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SIZE, BATCH = 64, 1000
_MANY, _ROUND = 100, 64


class Verb(NamedTuple):
    """
    One row.

    Attributes:
        does: the statement that is timed.
        on: what it is called on, made before: the names of HANDLES.
        goal: how many times the cost of the row *beside* it may have.
        messages: how many messages one statement carries; 0 for all of them.
    """

    does: str
    on: str
    goal: float | None = None
    beside: str = "take"
    messages: int = 1


HANDLES = {
    "an empty queue": "",
    "a consumer": "c = queue.consumer('c')",
    "a consumer, explicit": "c = queue.consumer('c', ack='explicit')",
    "a group": "c = queue.consumer('g', group=True)",
    "a group, explicit": "c = queue.consumer('g', group=True, ack='explicit')",
    "a reader": "reader = queue.reader()",
    "a queue": "m = queue[0]",
}

VERBS = {
    "put": Verb("queue.put(message)", "an empty queue"),
    "put, key": Verb("queue.put(message, key=b'k')", "an empty queue", 1.3, "put"),
    "put, everything": Verb(
        "queue.put(message, key=b'k', type=3, headers={'a': 1}, ttl=1000, time_ns=now)", "an empty queue", 8
    ),
    "put, dedup": Verb("queue.put(message, dedup=('p', i))", "an empty queue"),
    "put_many": Verb("queue.put_many(hundred)", "an empty queue", 1.2, messages=_MANY),
    "take": Verb("c.take()", "a consumer", 1),
    "take_many": Verb("c.take_many(100)", "a consumer", messages=_MANY),
    "get": Verb("c.get()", "a consumer", 2.5),
    "loop": Verb("for m in first(c, count): pass", "a consumer", 2.5, messages=0),
    "get_many": Verb("c.get_many(64)", "a consumer", messages=_ROUND),
    "get, ack": Verb("c.get().ack()", "a consumer, explicit", 5),
    "group take": Verb("c.take()", "a group", 4),
    "group take, explicit": Verb("c.take()", "a group, explicit", 4),
    "group get, ack": Verb("c.get().ack()", "a group, explicit", 8),
    "group get_many, ack": Verb("c.ack(*c.get_many(64))", "a group, explicit", 3, messages=_ROUND),
    "reader": Verb("for m in reader: pass", "a reader", 2.5, messages=0),
    "index": Verb("queue[i]", "a queue"),
    "payload": Verb("m.payload", "a queue"),
}
"""By names, which figures in JSON have."""

SHORT = ("put", "put_many", "take", "get, ack", "group get, ack", "group get_many, ack", "reader", "index")
"""What quick.py shows."""

_LOOP = "for i in range(count // {messages}): {does}"


def ns(verb: Verb, path: str, count: int, size: int = SIZE) -> float:
    """What a message costs by this verb: of so many, in a new queue."""
    message = b"x" * size
    with shmq.open(path) as queue:
        for _ in range(0, BATCH if verb.on == "an empty queue" else count, BATCH):
            queue.put_many([message] * BATCH)  # into an empty queue too, which gets its producer and first chunk by it
        stood = len(queue)
        names = {"queue": queue, "count": count, "first": itertools.islice, "message": message, "now": time.time_ns()}
        names["hundred"] = [message] * _MANY
        exec(HANDLES[verb.on], names)
        loop = _LOOP.format(messages=verb.messages, does=verb.does) if verb.messages else verb.does
        took = timeit.Timer(loop, "import gc; gc.enable()", timer=time.process_time, globals=names).timeit(1)
        carried = len(queue) - stood or count
        if "c" in names:
            carried = stood - names.pop("c").lag
        if not 0.95 * count <= carried <= count:
            raise AssertionError(f"{verb.does} carried {carried} messages of {count}")
        names.clear()
    return took / carried * 1e9


def measure(names: Iterable[str], place: str, count: int, rounds: int, size: int = SIZE) -> dict[str, list[float]]:
    """One figure a round of each of these verbs, in turn."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name, figures in found.items():
            path = f"{place}/{number}"
            figures.append(ns(VERBS[name], path, count, size))
            shutil.rmtree(path)
    return found


def rows(found: dict[str, list[float]]) -> list[Sequence[str]]:
    """The table: figure and ratio, and what was aimed at."""
    return [_row(VERBS[name], figures, found) for name, figures in found.items()]


def _row(verb: Verb, figures: list[float], found: dict[str, list[float]]) -> Sequence[str]:
    goal = ""
    if verb.goal is not None:
        goal = f"{verb.goal:g}"
    if verb.beside != "take":
        goal += f" of {verb.beside}: {report.median_ratio(figures, found[verb.beside]):.2f}"
    return (
        f"`{verb.does}`",
        verb.on,
        f"{statistics.median(figures):,.0f}",
        report.spread(figures),
        f"{report.median_ratio(figures, found['take']):.2f}",
        goal,
    )


def title(rounds: int, size: int = SIZE) -> str:
    """What stands above it."""
    return (
        f"What a message of {size} bytes costs by each verb, in memory, in one process: ns, medians of {rounds} rounds"
    )


HEADS = ("", "on", "ns", "min .. max", "beside take", "goal")


def main() -> None:
    parser = report.arguments(__doc__)
    parser.add_argument("--count", type=int, default=50_000, help="messages of a row; thousands. Default: 50,000")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--size", type=int, default=SIZE, help="bytes of a message; default: 64")
    options = parser.parse_args()
    with trial.workplace(options.directory or "/dev/shm") as place:
        out = report.Report(options, place)
        found = measure(VERBS, place, options.count // BATCH * BATCH, options.rounds, options.size)
    out.data |= {"size": options.size, "rounds": options.rounds, "figures": found}
    out.table(title(options.rounds, options.size), HEADS, rows(found))
    out.write()


if __name__ == "__main__":
    main()

"""The demo itself: starts the processes, kills two of them half-way, and adds everything up."""

from __future__ import annotations

import array
import contextlib
import datetime
import itertools
import multiprocessing
import random
import signal
import time
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import msgspec

import shmq
from demo import checks, picture, work
from demo import flights as data
from demo.problem import Problem, one_line
from demo.screen import Progress
from demo.work import AVERAGER, BATCH, COUNTER, PRODUCERS, Notes, Places

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

FETCHED = 1000
LAST = 10
_HOUR_NS = 3600 * 10**9
_ATTEMPTS = 5
_LOOK = 0.001
_STUCK = 60.0
"""Seconds without any progress after which the demo gives up: nothing here may hang."""

_spawn = multiprocessing.get_context("spawn")


class TooLate(Exception):
    """A process had finished before its kill arrived: this was no kill half-way."""


def play(csv: Path, top: Path, limit: int, *, keep: bool) -> dict[str, Any]:
    """Everything, from the table to the result."""
    progress = Progress()
    places = make_room(top, keep=keep)
    progress.say(f"reading {limit:,} flights from {csv.name}")
    expected = checks.Sums()
    hours: dict[int, list[int]] = {}
    data.prepare(places.prepared, checks.by_hour(checks.straight(data.read_csv(csv, limit), expected), hours))
    for _ in range(_ATTEMPTS):
        try:
            result = Run(places, expected, hours, progress).result()
            return result | through_memory(places, expected, progress, result["findings"])
        except TooLate as late:
            progress.say(f"{late}; once more")
            clear(places, prepared=False)
    raise Problem("the kill came too late every time; try with more flights")


def begin(job: Callable[..., None], *arguments: Any, name: str | None = None) -> SpawnProcess:
    """
    A process at its *job*.

    It is born with SIGINT blocked: a terminal's Ctrl-C must not reach it while it imports, before it can ignore that.
    """
    process = _spawn.Process(target=work.run, args=(job, *arguments), name=name, daemon=True)
    resource_tracker.ensure_running()  # where start() has to begin it, that unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def through_memory(places: Places, expected: checks.Sums, progress: Progress, findings: list[str]) -> dict[str, Any]:
    """The same flights once more, through an anonymous queue in shared memory, which leaves nothing behind."""
    progress.say("the same flights through a volatile queue")
    sums = checks.Sums()
    with shmq.open(None, options=shmq.Options(codec="msgpack")) as queue, queue.consumer(AVERAGER) as consumer:
        process = begin(work.replay, queue, places)
        began = time.monotonic_ns()
        try:
            while sums.flights < expected.flights:
                for flight in consumer.take_many(BATCH, timeout=_STUCK):
                    sums.add(sums.flights, flight["carrier"], flight["arr_delay"])
        except shmq.Empty:
            findings.append(f"the volatile queue had only {sums.flights:,} flights")
        finally:
            ended = time.monotonic_ns()
            process.kill()
            process.join()
    wrong = [f"volatile queue: {each}" for each in checks.compare_sums(expected, sums)]
    return {
        "volatile": {"flights": sums.flights, "rate": _rate(sums.flights, began, ended), "equal": not wrong},
        "findings": findings + wrong,
    }


# ---------------------------------------------------------------- the place
def make_room(top: Path, *, keep: bool) -> Places:
    """
    A directory for this run, without what an earlier run left; with *keep*, a new one beside it.

    Raises:
        Problem: something else lies there.
    """
    if keep and top.exists():
        number = 2
        while (numbered := top.with_name(f"{top.name}-{number}")).exists():
            number += 1
        top = numbered
    places = Places(top)
    if top.exists():
        ours = {places.queue, *places.files()}
        strange = sorted(each.name for each in top.iterdir() if each not in ours and each.suffix != ".unfinished")
        if strange:
            raise Problem(f"there are other things in {top} ({', '.join(strange[:3])}); name another place with --data")
    top.mkdir(parents=True, exist_ok=True)
    clear(places)
    return places


def clear(places: Places, *, prepared: bool = True) -> None:
    """Take away what a run left."""
    with contextlib.suppress(shmq.NotFound):
        shmq.delete(places.queue)
    for file in [*places.files(), *places.top.glob("*.unfinished")]:
        if prepared or file != places.prepared:
            file.unlink(missing_ok=True)


# ---------------------------------------------------------------- the run
class Run:
    """One run: from the empty queue to the result."""

    def __init__(self, places: Places, expected: checks.Sums, hours: dict[int, list[int]], progress: Progress) -> None:
        """Nothing is started yet."""
        self._hours = hours
        self._places = places
        self._expected = expected
        self._progress = progress
        self._total = expected.flights
        self._notes = Notes(places.notes, make=True)
        self._processes: dict[str, SpawnProcess] = {}
        self._findings: list[str] = []
        self._killed: dict[str, dict[str, int]] = {}
        self._seen = picture.Seen()
        self._started = 0.0

    def result(self) -> dict[str, Any]:
        """Run everything, and add it up."""
        self._progress.say(
            f"{PRODUCERS} producers, consumers {COUNTER} and {AVERAGER}; one of each will be killed half-way (kill -9)"
        )
        self._started = started = time.monotonic()
        # For ever: the reader looks at random flights after the consumers have finished them.
        options = shmq.Options(codec="msgpack", retention=shmq.Retention.forever())
        with shmq.open(self._places.queue, options=options) as queue:
            try:
                self._start(queue)
                self._watch(queue)
                seconds = time.monotonic() - started
                read = {"fetched": self._fetch(), "by_time": self._by_time(), "last": self._backward()}
            finally:
                for process in self._processes.values():
                    process.kill()
                    process.join()
            return self._add_up(queue, seconds, read)

    def _start(self, queue: shmq.Queue) -> None:
        self._begin(COUNTER, work.count, queue, self._places)
        self._begin(AVERAGER, work.average, queue, self._places)
        for which in range(PRODUCERS):
            self._begin(_producer(which), work.produce, queue, self._places, which)

    def _begin(self, name: str, job: Callable[..., None], *arguments: Any) -> None:
        self._processes[name] = begin(job, *arguments, name=name)

    def _watch(self, queue: shmq.Queue) -> None:
        """Until all have finished: look at their notes, kill two of them half-way, shut the queue down at the end."""
        victim = random.randrange(PRODUCERS)  # noqa: S311  # no secret
        share = self._total // PRODUCERS
        kills: dict[str, tuple[str, int, Callable[[], None]]] = {  # whom; which note says how far it is, of how much
            _producer(victim): (f"returned{victim}", share, lambda: self._producer_again(queue, victim)),
            AVERAGER: ("summed", self._total, lambda: self._averager_again(queue)),
        }
        moments = {name: _half_way(work_load) for name, (_, work_load, _) in kills.items()}
        last, since, open_for_puts = 0, time.monotonic(), True
        while any(process.is_alive() for process in self._processes.values()) or kills:
            for name, (note, work_load, again) in list(kills.items()):
                if self._notes[note] >= moments[name]:
                    self._kill(name)
                    if self._notes[note] >= work_load:
                        raise TooLate(f"{name} had finished before the kill arrived")
                    del kills[name]
                    again()
            self._check_alive(kills)
            if open_for_puts and all(self._ended(_producer(which)) for which in range(PRODUCERS)):
                queue.shutdown()  # consumers drain what is left, and then their iteration ends
                open_for_puts = False
            done = sum(self._notes[name] for name in ("returned0", "returned1", "counted", "summed"))
            if done != last:
                last, since = done, time.monotonic()
            elif time.monotonic() - since > _STUCK:
                raise Problem(f"nothing has moved for {_STUCK:.0f} s: {self._line()}")
            self._see()
            self._progress.show(self._line())
            time.sleep(_LOOK)
        self._progress.say(self._line())

    def _see(self) -> None:
        """Note how far everybody is, for the picture."""
        notes = self._notes
        put = sum(notes[f"returned{which}"] for which in range(PRODUCERS))
        self._seen.see(time.monotonic() - self._started, put, notes["counted"], notes["summed"])

    def _line(self) -> str:
        put = sum(self._notes[f"returned{which}"] for which in range(PRODUCERS))
        counted, summed = self._notes["counted"], self._notes["summed"]
        return f"  put {put:,}   counted {counted:,}   summed {summed:,}   of {self._total:,}"

    def _ended(self, name: str) -> bool:
        return not self._processes[name].is_alive()

    def _check_alive(self, kills: dict[str, Any]) -> None:
        """Nobody ends but with 0; and nobody who is still to be killed has ended."""
        for name, process in self._processes.items():
            if process.exitcode:
                raise Problem(f"{name} ended with status {process.exitcode}")
            if name in kills and process.exitcode == 0:
                raise TooLate(f"{name} had finished before the kill arrived")

    def _kill(self, name: str) -> None:
        process = self._processes[name]
        self._seen.kills.append((time.monotonic() - self._started, name))
        process.kill()  # SIGKILL
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise TooLate(f"{name} had finished before the kill arrived")

    def _producer_again(self, queue: shmq.Queue, which: int) -> None:
        returned = self._notes[f"returned{which}"]
        self._progress.say(
            f"kill -9 {_producer(which)}, whose put() had returned {returned:,} times; starting it again"
        )
        self._killed["producer"] = {"producer": which + 1, "returned": returned}
        self._begin(_producer(which), work.produce, queue, self._places, which)

    def _averager_again(self, queue: shmq.Queue) -> None:
        acknowledged = self._notes["acknowledged"]
        self._progress.say(f"kill -9 consumer {AVERAGER}, who had acknowledged {acknowledged:,}; starting it again")
        self._killed["consumer"] = {"acknowledged": acknowledged, "summed": self._notes["summed"]}
        self._notes["first_again"] = -1
        self._begin(AVERAGER, work.average, queue, self._places)

    # ---- afterwards
    def _fetch(self) -> dict[str, Any]:
        """Random flights by index, through a handle that can change nothing."""
        order = array.array("i", self._places.order.read_bytes())
        flights = data.Flights(self._places.prepared)
        indexes = [index for index, number in enumerate(order) if number >= 0]
        began = time.monotonic()
        with shmq.open(self._places.queue, create=False, read_only=True, codec="msgpack") as queue:
            for done, index in enumerate(random.choices(indexes, k=FETCHED) if indexes else []):  # noqa: S311
                self._progress.show(f"  fetched {done:,} of {FETCHED:,} flights by index")
                try:
                    message = queue[index]
                except (IndexError, shmq.ShmqError) as problem:
                    self._findings.append(f"index {index}: {one_line(problem)}")
                    continue
                self._findings += checks.compare_fetched(index, _parts(message), order, flights)
        return {"flights": FETCHED, "rate": FETCHED / (time.monotonic() - began)}

    def _by_time(self) -> dict[str, Any]:
        """All flights of one hour. Producers overtake each other, so it reads on behind the first later one."""
        if not self._hours:
            return {"hour": None, "flights": 0, "equal": True}
        latest = sorted(self._hours)[-(len(self._hours) // 10 + 1) :]
        start_ns = random.choice(latest)  # noqa: S311  # no secret
        hour = datetime.datetime.fromtimestamp(start_ns // 10**9, datetime.UTC)
        with (
            shmq.open(self._places.queue, create=False, read_only=True, codec="msgpack") as queue,
            queue.reader(start=hour) as reader,
        ):
            found = [message.payload["id"] for message in reader if 0 <= message.time_ns - start_ns < _HOUR_NS]
        wrong = checks.compare_hour(start_ns, found, self._hours[start_ns])
        self._findings += wrong
        return {"hour": f"{hour:%Y-%m-%d %H:%M}", "flights": len(found), "equal": not wrong}

    def _backward(self) -> dict[str, Any]:
        """The last flights, from the last to the first."""
        order = array.array("i", self._places.order.read_bytes())
        flights = data.Flights(self._places.prepared)
        wanted = [index for index, number in enumerate(order) if number >= 0][: -LAST - 1 : -1]
        with (
            shmq.open(self._places.queue, create=False, read_only=True, codec="msgpack") as queue,
            queue.reader(reverse=True) as reader,
        ):
            found = list(itertools.islice(reader, LAST))
        wrong = checks.compare_backward([message.index for message in found], wanted)
        for message in () if wrong else found:
            wrong += checks.compare_fetched(message.index, _parts(message), order, flights)
        self._findings += wrong
        return {"flights": len(found), "equal": not wrong}

    def _add_up(self, queue: shmq.Queue, seconds: float, read: dict[str, Any]) -> dict[str, Any]:
        ledger = msgspec.json.decode(self._places.ledger.read_bytes())
        sums = checks.Sums.load(self._places.sums)
        notes, producer, consumer = self._notes, self._killed["producer"], self._killed["consumer"]
        which = producer["producer"] - 1
        producer["found"] = notes[f"found{which}"]
        consumer |= {"again": sums.again, "skipped": sums.skipped, "first_again": notes["first_again"]}
        broken = checks.compare_restart(_producer(which), producer["returned"], producer["found"])
        redelivered = checks.compare_redelivery(consumer["acknowledged"], notes["first_again"], sums.again, BATCH)
        told = ledger["told"] + [f"... {ledger['findings']:,} findings of consumer {COUNTER}"] * (
            ledger["findings"] > len(ledger["told"])
        )
        findings = told + checks.compare_sums(self._expected, sums) + broken + redelivered + self._findings
        table, means = self._expected.means(), sums.means()
        lost = ledger["lost"] + max(self._total - sums.flights, 0)
        sentence = f"{self._total:,} flights, {len(self._seen.kills)} kills, {lost:,} lost"
        return {
            "flights": self._total,
            "producers": [
                {
                    "producer": each + 1,
                    "put": notes[f"returned{each}"],
                    "rate": _rate(notes[f"returned{each}"], notes[f"began{each}"], notes[f"ended{each}"]),
                }
                for each in range(PRODUCERS)
            ],
            "counted": {
                "seen": ledger["seen"],
                "rate": _rate(ledger["seen"], notes["count_began"], notes["count_ended"]),
            },
            "averaged": {
                "flights": sums.flights,
                "rate": _rate(sums.flights, notes["average_began"], notes["average_ended"]),
            },
            **read,
            "lost": lost,
            "doubled": ledger["doubled"] + max(sums.flights - self._total, 0) + len(redelivered),
            "kills": self._killed,
            "means": [
                {
                    "carrier": carrier,
                    "queue": means.get(carrier),
                    "table": table.get(carrier),
                    "equal": self._expected.carriers.get(carrier) == sums.carriers.get(carrier),
                }
                for carrier in sorted(table.keys() | means.keys())
            ],
            "seconds": seconds,
            "picture": str(picture.write(self._seen, sentence, self._places.picture)),
            "disk_bytes": queue.stats().disk_bytes,
            "queue": str(self._places.queue.absolute()),
            "findings": findings,
        }


def _parts(message: shmq.Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in ("index", "key", "time_ns", "payload")}


def _producer(which: int) -> str:
    return f"producer {which + 1}"


def _half_way(total: int) -> int:
    """Somewhere around the middle, a little earlier rather than later."""
    return int(total * random.uniform(0.3, 0.55))  # noqa: S311  # no secret


def _rate(count: int, began_ns: int, ended_ns: int) -> float:
    return count / max((ended_ns - began_ns) / 1e9, 1e-9)

"""
One trial: a sending and a taking process over one channel, timed from the first send to the last message taken.

Both processes open their end, exchange one message that is not counted, and meet at a barrier. The taker counts and
keeps a sample, which is compared afterwards with what was sent: nobody wins by losing or by mixing up.
"""

from __future__ import annotations

import itertools
import multiprocessing.connection
import os
import resource
import shutil
import tempfile
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers import FORK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.peers import Channel, End

DEADLINE = 60.0
_ROUND = 1100  # distinct small messages; whole batches of 100, and no divisor of the sample's stride
_STRIDE = 1000  # small messages between two that are looked at
_WARM_UP = 200  # round trips that are not counted


def payloads(size: int, count: int = _ROUND) -> list[bytes]:
    """Messages that tell each other apart in every eighth byte."""
    return [(number.to_bytes(8, "little") * (size // 8 + 1))[:size] for number in range(count)]


@contextmanager
def workplace(directory: str | None) -> Iterator[str]:
    """A directory for the trials' files, gone afterwards. By default below /var/tmp, which is on a disk."""
    place = tempfile.mkdtemp(prefix="shmq-bench-", dir=directory or "/var/tmp")
    try:
        yield place
    finally:
        shutil.rmtree(place)


def in_processes(*jobs: Callable[[], Any], start: Any = FORK) -> list[Any]:
    """What each job returned, each in a process of its own. One that fails ends them all."""
    reports, processes = [], []
    for job in jobs:
        mine, theirs = start.Pipe(duplex=False)
        process = start.Process(target=_run, args=(job, theirs))
        process.start()
        theirs.close()
        reports.append(mine)
        processes.append(process)
    answers: dict[int, Any] = {}
    end = time.monotonic() + DEADLINE
    try:
        while len(answers) < len(jobs):
            waiting = [report for number, report in enumerate(reports) if number not in answers]
            ready = multiprocessing.connection.wait(waiting, end - time.monotonic())
            if not ready:
                raise TimeoutError(f"a trial did not end within {DEADLINE} s")
            for report in ready:
                good, answer = report.recv()
                if not good:
                    raise RuntimeError(answer)
                answers[reports.index(report)] = answer
        for process in processes:
            process.join(DEADLINE)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()
    return [answers[number] for number in range(len(jobs))]


def _run(job: Callable[[], Any], report: Any) -> None:
    try:
        answer = (True, job())
    except BaseException:  # noqa: BLE001  # told in the parent
        answer = (False, traceback.format_exc())
    report.send(answer)


# ---------------------------------------------------------------- messages per second
def rate(peer: type[Channel], place: str, *, size: int, count: int, batch: int = 1) -> float:
    """Messages per second through a new channel of this peer; one call each, or *batch* at a time."""
    many = batch > 1
    messages = payloads(size, _ROUND if size * _ROUND < 1 << 24 else 11)
    channel = peer(place, size, batch)
    barrier = FORK.Barrier(2)

    def send() -> int:
        end = channel.sender()
        (end.many([messages[0]]) if many else end.one(messages[0]))  # type: ignore[misc]
        barrier.wait()
        began = time.monotonic_ns()
        _send_many(end, messages, count, batch) if many else _send(end, messages, count)
        end.close()
        return began

    def take() -> int:
        end = channel.taker()
        (end.many if many else end.one)()  # type: ignore[misc]
        barrier.wait()
        ended = _take_many(end, messages, count) if many else _take(end, messages, count)
        end.close()
        return ended

    try:
        began, ended = in_processes(send, take)
    finally:
        channel.remove()
    return count / (ended - began) * 1e9


def _send(end: End, messages: list[bytes], count: int) -> None:
    send = end.one
    for message in itertools.islice(itertools.cycle(messages), count):
        send(message)


def _take(end: End, messages: list[bytes], count: int) -> int:
    take = end.one
    stride = min(_STRIDE, count)
    samples = []
    for _ in range(count // stride):
        for _ in itertools.repeat(None, stride - 1):
            take()
        samples.append(take())
    for _ in range(count % stride):
        take()
    ended = time.monotonic_ns()
    for number, sample in enumerate(samples):
        _check(sample, messages[(stride * (number + 1) - 1) % len(messages)])
    return ended


def _send_many(end: End, messages: list[bytes], count: int, batch: int) -> None:
    send: Any = end.many
    batches = [messages[at : at + batch] for at in range(0, len(messages), batch)]
    for each in itertools.islice(itertools.cycle(batches), count // batch):
        send(each)


def _take_many(end: End, messages: list[bytes], count: int) -> int:
    take: Any = end.many
    samples = []
    taken = calls = 0
    while taken < count:
        some = take()
        if calls % 10 == 0:
            samples.append((taken, some))
        taken += len(some)
        calls += 1
    ended = time.monotonic_ns()
    if taken != count:
        raise AssertionError(f"{taken} messages were taken of {count}")
    for first, some in samples:
        for number, sample in enumerate(some):
            _check(sample, messages[(first + number) % len(messages)])
    return ended


def _check(taken: Any, sent: bytes) -> None:
    if taken != sent:
        raise AssertionError(f"took {bytes(taken[:16])!r}..., where {sent[:16]!r}... was sent")


# ---------------------------------------------------------------- there and back
def round_trips(
    peer: type[Channel],
    place: str,
    *,
    size: int,
    count: int,
    pause: float = 0.0,
    processors: tuple[int, int] | None = None,
) -> list[int]:
    """
    The times of *count* round trips in ns, ascending: two channels of this peer, an echo at the far end.

    Args:
        pause: seconds between them, in which both sides fall asleep.
        processors: where either side stays; None for wherever the scheduler has them.
    """
    here, away = ({processor} for processor in processors) if processors else (os.sched_getaffinity(0),) * 2
    there, back = peer(f"{place}-there", size, 1), peer(f"{place}-back", size, 1)
    messages = payloads(size)

    def ping() -> list[int]:
        os.sched_setaffinity(0, here)
        send, take = there.sender(), back.taker()
        times = []
        clock = time.perf_counter_ns
        for message in itertools.islice(itertools.cycle(messages), count + _WARM_UP):
            if pause:
                time.sleep(pause)
            began = clock()
            send.one(message)
            answer = take.one()
            times.append(clock() - began)
            if answer != message:
                _check(answer, message)
        send.close()
        take.close()
        return sorted(times[_WARM_UP:])

    def echo() -> None:
        os.sched_setaffinity(0, away)
        take, send = there.taker(), back.sender()
        for _ in range(count + _WARM_UP):
            send.one(take.one())
        send.close()
        take.close()

    try:
        times, _ = in_processes(ping, echo)
    finally:
        there.remove()
        back.remove()
    return times


def percentile(ascending: list[int], share: float) -> int:
    """The value below which that share of them lies."""
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]


# ---------------------------------------------------------------- what a process uses
def cpu_seconds() -> float:
    """User and system time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident(kind: str) -> int:
    """RssAnon, RssFile or RssShmem of this process, in bytes."""
    for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"{kind} is not in /proc/self/status")

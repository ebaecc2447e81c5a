"""
The processes of an experiment, and what is done to them: killed and replaced, stopped and let go on, by a schedule.

A seed repeats the schedule: when, what, to which of them. It does not repeat where exactly each one is at that moment.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import queue as queues
import random
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

import shmq
from shmq.cli.experiment import notes, roles
from shmq.cli.experiment.judge import MEMBER, PRODUCER, SINGLE, History, Life, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.context import ForkProcess

    from shmq.cli.experiment.roles import Stage

    Role = Callable[[Stage, int, int], None]

_FORK = multiprocessing.get_context("fork")
_OFTEN = 0.15
"""Seconds between two things that are done to somebody, on average."""
_LOOK = 1.0
"""Seconds after which it is asked again whether it is to end."""
_STOPPED = (0.02, 0.6)
_KILLS = 0.7
"""How many of these things are kills; the others are stops."""
_PATIENCE = 60.0
"""Seconds without any progress after which a queue of ours is said to hang."""
_THEIR_PATIENCE = 5.0


class Event(NamedTuple):
    """One thing that is done to one process."""

    at: float
    kill: bool
    slot: int
    seconds: float
    """How long it is stopped."""


def schedule(seed: int, seconds: float, slots: int) -> list[Event]:
    """What is done to whom, and when; each seed has its own."""
    chance, events, at = random.Random(seed), [], 0.0  # noqa: S311  # the same again is what it is for
    while (at := at + chance.expovariate(1 / _OFTEN)) < seconds:
        kill = chance.random() < _KILLS
        events.append(Event(at, kill, chance.randrange(slots), chance.uniform(*_STOPPED)))
    return events


@dataclasses.dataclass
class Figures:
    """What happened to one queue."""

    verdict: Verdict
    seconds: float
    kills: int = 0
    stops: int = 0
    last_progress: float = 0.0
    """How many seconds after its beginning the last message came out."""
    errors: int = 0
    """How many processes ended with an error."""
    hung: bool = False
    left: int = 0
    """How many processes did not end by themselves, and were killed at the end."""


class Crowd:
    """The processes of one stage."""

    def __init__(
        self, stage: Stage, parts: Sequence[tuple[str, Role]], seed: int, check: Callable[[], object] = lambda: None
    ) -> None:
        """One process for each of *parts*; `run` starts them. *check*: raises when it is to end."""
        self._stage, self._parts, self._seed, self._check = stage, parts, seed, check
        self._lives: dict[int, tuple[str, ForkProcess]] = {}
        self._slots: list[int] = []
        self._killed: set[int] = set()
        self._resume: list[tuple[float, int]] = []
        self.kills = self.stops = 0

    def run(self, seconds: float, patience: float) -> Figures:
        """Start them, trouble them for so long, and let those that are there then finish what there is."""
        began = time.monotonic()
        try:
            for slot in range(len(self._parts)):
                self._slots.append(self._start(slot))
            for event in schedule(self._seed, seconds, len(self._parts)):
                self._wait(began + event.at)
                self._trouble(event)
            self._wait(began + seconds)
            self._wait(max((when for when, _ in self._resume), default=0.0))
            os.close(os.open(self._stage.end, os.O_CREAT | os.O_WRONLY, 0o600))
            left = self._finish(patience)
        finally:
            self.end()
        history = self._history()
        times = [note.time_ns / 1e9 for life in history.lives.values() for note in life.notes if note.kind == notes.GOT]
        return Figures(
            verdict=judge(history),
            seconds=seconds,
            kills=self.kills,
            stops=self.stops,
            last_progress=max(times, default=began) - began,
            errors=len(self.errors()),
            left=left,
        )

    def end(self) -> None:
        """Kill whoever is left, and wait for it."""
        for life in self._lives:
            self._kill(life)

    def errors(self) -> list[str]:
        """Of each process that ended by itself, and with an error, what it was and how it ended."""
        return [
            f"process {life}, a {role}, ended with {process.exitcode}"
            for life, (role, process) in self._lives.items()
            if life not in self._killed and process.exitcode
        ]

    def _start(self, slot: int) -> int:
        life = len(self._lives) + 1
        role, play = self._parts[slot]
        process = _FORK.Process(target=roles.play, args=(play, self._stage, life, self._seed << 20 | life), daemon=True)
        process.start()
        self._lives[life] = role, process
        return life

    def _trouble(self, event: Event) -> None:
        life = self._slots[event.slot]
        process = self._lives[life][1]
        if event.kill:
            self._kill(life)
            self.kills += 1
            self._slots[event.slot] = self._start(event.slot)
        elif process.pid is not None and process.is_alive():
            self.stops += 1
            os.kill(process.pid, signal.SIGSTOP)
            self._resume.append((time.monotonic() + event.seconds, life))

    def _kill(self, life: int) -> None:
        """Have it dead; the end of one that had ended is its own."""
        process = self._lives[life][1]
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            self._killed.add(life)

    def _wait(self, until: float) -> None:
        """Until then; whoever was stopped goes on when its time has come."""
        while True:
            self._check()
            now = time.monotonic()
            for when, life in [each for each in self._resume if each[0] <= now]:
                self._resume.remove((when, life))
                process = self._lives[life][1]
                if process.pid is not None and process.is_alive():
                    os.kill(process.pid, signal.SIGCONT)
            if now >= until:
                return
            time.sleep(max(min([until, now + _LOOK, *(when for when, _ in self._resume)]) - now, 0))

    def _finish(self, patience: float) -> int:
        """Wait until all have left, or nothing moves; how many have not left."""
        written, since = -1, time.monotonic()
        while alive := [process for _, process in self._lives.values() if process.is_alive()]:
            self._check()
            now = sum(os.stat(self._stage.notebook(life)).st_size for life in self._lives if self._has_notes(life))
            if now != written:
                written, since = now, time.monotonic()
            if time.monotonic() - since > patience:
                return len(alive)
            alive[0].join(0.05)
        return 0

    def _has_notes(self, life: int) -> bool:
        return os.path.exists(self._stage.notebook(life))

    def _history(self) -> History:
        lives = {}
        for life, (role, _) in self._lives.items():
            written = notes.read(self._stage.notebook(life)) if self._has_notes(life) else []
            lives[life] = Life(role, life in self._killed, written)
        log = {} if self._stage.theirs else _log(self._stage.queue)
        return History(lives, log, theirs=self._stage.theirs is not None)


def _log(path: str) -> dict[int, tuple[int, int, int] | None]:
    with shmq.open(path, create=False, read_only=True) as queue:
        return {message.index: notes.told(bytes(message.view)) for message in queue.reader()}


def trouble_ours(
    directory: str, options: shmq.Options, workers: int, seconds: float, seed: int, check: Callable[[], object]
) -> Figures:
    """
    The experiment with a queue of ours: *workers* producers, as many in a group, and one consumer alone.

    *check* raises when it is to end.
    """
    stage = roles.Stage(directory)
    with shmq.open(stage.queue, options=options) as queue:  # the names see what is put from the beginning
        queue.consumer(roles.GROUP, group=True, ack="explicit").close()
        queue.consumer(roles.ALONE).close()
    parts: list[tuple[str, Role]] = [(PRODUCER, roles.produce), (MEMBER, roles.consume_in_group)] * workers
    crowd = Crowd(stage, [*parts, (SINGLE, roles.consume_alone)], seed, check)
    found = crowd.run(seconds, _PATIENCE)
    for error in crowd.errors():
        found.verdict.say(f"{error}; {stage.errors} says why")
    if found.left:
        found.hung = True
        found.verdict.say(f"{found.left} processes did not end: nothing moved for {_PATIENCE:g} s")
    _check_end(stage, found)
    return found


def _check_end(stage: Stage, found: Figures) -> None:
    """What the queue says of itself at the end."""
    with shmq.open(stage.queue, create=False) as queue:
        for name, each in queue.consumers().items():
            if each.lag:
                found.verdict.say(f"{each.lag} messages are not finished by {name}, and nobody is there any more")
        verified = queue.verify()
        if verified.problems:
            found.verdict.broken += len(verified.problems)
            found.verdict.say(f"verify finds {len(verified.problems)} problems: {verified.problems[0]}")


def trouble_theirs(directory: str, workers: int, seconds: float, seed: int, check: Callable[[], object]) -> Figures:
    """The same with multiprocessing.Queue, and one consumer more in the place of the one alone."""
    stage = roles.Stage(directory, _FORK.Queue())
    parts: list[tuple[str, Role]] = [(PRODUCER, roles.produce_theirs), (MEMBER, roles.consume_theirs)] * workers
    patience = min(_THEIR_PATIENCE, seconds)
    found = Crowd(stage, [*parts, (MEMBER, roles.consume_theirs)], seed, check).run(seconds, patience)
    found.hung = found.last_progress < seconds - patience or bool(found.left)
    return found


def kill_after_puts(directory: str, items: int, *, theirs: bool) -> int:
    """The experiment of the README: so many are put, then the producer is killed; how many are left."""
    stage = roles.Stage(directory, _FORK.Queue() if theirs else None)
    if not theirs:
        shmq.open(stage.queue).close()
    process = _FORK.Process(target=roles.play, args=(roles.put_and_wait, stage, 1, items), daemon=True)
    process.start()
    try:
        while process.is_alive() and not (os.path.exists(stage.notebook(1)) and notes.read(stage.notebook(1))):
            time.sleep(0.01)
        time.sleep(1)  # every put has returned; what has not left by now waits for somebody to read
    finally:
        process.kill()
        process.join()
    return _left_of_theirs(stage) if theirs else _left_of_ours(stage)


def _left_of_ours(stage: Stage) -> int:
    with shmq.open(stage.queue, create=False) as queue, queue.consumer("heir") as heir:
        left = 0
        try:
            while heir.take(timeout=0):
                left += 1
        except shmq.Empty:
            return left
    return left


def _left_of_theirs(stage: Stage) -> int:
    left = 0
    if stage.theirs is not None:
        try:
            while stage.theirs.get(timeout=1.0):
                left += 1
        except queues.Empty:
            stage.theirs.close()
    return left

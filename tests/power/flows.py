"""
A flow of two stages, and power cuts: the next run goes on, and each item comes out once.

The flow is the real one, but its workers are here: `InProcess` gives them turns, one after the other, so a history is
repeated by its seed. Some images are run by real workers. With PROCESS an item may come out twice, where what the first
stage made of it went with the power, and what the second one made of that did not; with SYNC none does.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import random
import time
import warnings
from typing import TYPE_CHECKING, Any
from unittest import mock

import shmq
from shmq.flow import bench, feeding, flow, order, place
from shmq.flow.run import Run
from shmq.taking import forward, lasting

from .history import History, Recorder, State
from .judge import another_boot, check
from .workloads import CHUNK_BYTES, WINDOW, small_groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .shim import Shim

PATIENCE = 20.0


@dataclasses.dataclass(frozen=True)
class Profile:
    """What kind of flow it is."""

    name: str
    durability: str
    ordered: bool = False
    sink: bool = False
    """Into a queue of the user's, who finishes it, not the flow."""
    items: int = 24


PROFILES = (
    Profile("flow process", "process"),
    Profile("flow sink", "process", sink=True),
    Profile("flow sync", "sync"),
    Profile("flow ordered", "sync", ordered=True),
)


def double(item: int) -> Iterator[tuple[int, int]]:
    """Two of one."""
    yield item, 0
    yield item, 1


def same(item: tuple[int, int]) -> tuple[int, int]:
    """As it is."""
    return item


def out(root: str, profile: Profile) -> str:
    """Where it comes out."""
    return f"{root}/{'sink' if profile.sink else 'flow/out'}"


def run_all(root: str, profile: Profile) -> None:
    """The flow, to its end."""
    flow = shmq.Flow(f"{root}/flow", durability=profile.durability, context="fork")
    flow.stage(double, ordered=profile.ordered)
    if profile.sink:
        with shmq.open(out(root, profile), codec="pickle", trusted=True) as sink:
            flow.sink(sink, name="same").run(range(profile.items), progress=False)
    else:
        flow.stage(same, ordered=profile.ordered).run(range(profile.items), progress=False)


class Life:
    """A worker's, of one that nobody asks to leave."""

    ending = False

    def __init__(self, run: InProcess, number: int) -> None:
        self._run, self._number = run, number

    def wait(self, call: Any) -> Any:
        """What it answers."""
        return call()

    def say(self, word: bytes) -> None:
        """To whoever started it."""
        self._run._on_word(self._number, os.getpid(), word)


class Worker:
    """One stage's only worker, in this process: it is given turns. In the place of a pool of processes."""

    def __init__(self, run: InProcess, number: int) -> None:
        stages = run._stages
        stage = stages[number]
        following = stages[number + 1] if number + 1 < len(stages) else None
        self._ordered = stage.ordered
        kind = order.Ordered if stage.ordered else bench.Bench
        self.bench = kind(Life(run, number), run._place, number, stage, following)  # type: ignore[arg-type]
        self.over = False

    def start(self) -> None:
        """Open its queues."""
        self.bench.__enter__()

    def turn(self, count: int) -> None:
        """Take so many, and finish them."""
        try:
            messages = self.bench.consumer.get_many(count, timeout=0)
        except shmq.Empty:
            return
        except shmq.ShutDown:
            self.over = True
            self.bench.pass_on_the_end()
            return
        if isinstance(self.bench, order.Ordered):
            self.bench._do(messages)
            self.bench._commit_in_turn()
        else:
            self.bench.handle(messages)

    def stop(self, *, wait: bool = True, timeout: float | None = None) -> bool:  # as that of pools
        """Close them."""
        self.bench.__exit__()
        return True

    def kill(self) -> None:
        """Never: it has left."""


class InProcess(Run):
    """A run whose workers are given turns by chance, or by turns."""

    chance: random.Random | None = None
    recorder: Recorder | None = None

    def _pool(self, number: int) -> Any:
        worker = Worker(self, number)
        self._workers = [*getattr(self, "_workers", []), worker]
        return worker

    def _feed_and_drain(self, source: Any) -> None:
        first, chance = self._queues[0], self.chance
        items = list(source)
        until = time.monotonic() + PATIENCE
        while not all(worker.over for worker in self._workers):
            check(time.monotonic() < until, "it does not come to its end")
            what = chance.choice(("feed", "work", "work", "work", "sync")) if chance else "work"
            self._say(what)
            if what == "sync":
                for queue in self._queues:
                    queue.sync()
            elif what == "work":
                for worker in [each for each in self._workers if not each.over]:
                    if chance is None or chance.random() < 0.6:
                        worker.turn(chance.randint(1, 6) if chance else 16)
            if not first.finished and (what == "feed" or chance is None):
                self._feed_some(items, chance.randint(1, 8) if chance else len(items))

    def _feed_some(self, items: list[Any], count: int) -> None:
        first = self._queues[0]
        done = feeding.fed(first)
        some = items[done : done + count]
        if some:
            first.put_many(some, dedup=(feeding.SOURCE, done + len(some)))
        else:
            first.finish()

    def _say(self, what: str) -> None:
        if self.recorder is not None:
            self.recorder.say(what)


@contextlib.contextmanager
def here(kind: type[Run]) -> Iterator[None]:
    """Flows are run by that, and have small files."""
    real = shmq.open

    def small(path: str, **how: Any) -> Any:
        return real(path, **how, chunk_bytes=CHUNK_BYTES, unsafe_filesystem=True)

    with (
        mock.patch.object(flow, "Run", kind),
        mock.patch.object(shmq, "open", small),
        mock.patch.object(place, "WINDOW", WINDOW),
        mock.patch.object(lasting, "EVERY", 3600.0),  # no clock strikes
        mock.patch.object(lasting.Keeper, "last", return_value=None),  # who leaves finds somebody else at it
        mock.patch.object(forward, "_AGAIN_NS", 0),
    ):
        yield


class Telling:
    """Reads a history from its beginning; all that must be true is so at each moment."""

    def __init__(self, history: History) -> None:
        self.state = State(history)
        self.doing = "nothing"

    def step(self) -> None:
        """One event more."""
        self.doing = getattr(self.state.step(), "what", self.doing)

    def truth(self) -> Telling:
        """What it is doing is all there is to know."""
        return self


def judge(root: str, profile: Profile, *, workers: bool = False) -> None:
    """
    Run it to its end, after the cut; by real *workers*, or by those here.

    Raises:
        Found, shmq.ShmqError, OSError: something that must be true is not.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)  # a checkpoint that is moved back is said, as promised
        stack.enter_context(another_boot())
        stack.enter_context(here(Run if workers else InProcess))
        remade = set() if profile.durability == "sync" else _remade(root, profile)
        run_all(root, profile)
        got = _payloads(out(root, profile))
        wanted = [each for item in range(profile.items) for each in double(item)]
        lost = set(wanted) - set(got)
        check(not lost, "it never came out", lost)
        twice = {item for item, count in collections.Counter(got).items() if count > 1}
        check(not twice - remade, "it came out twice", twice)
        check(set(got) == set(wanted), "it was never put in", set(got) - set(wanted))
        check(not profile.ordered or got == wanted, "they came out in another order", got)


def _remade(root: str, profile: Profile) -> set[Any]:
    """What is there while that is lost of which it came."""
    fed, between = _payloads(f"{root}/flow/0.double"), _payloads(f"{root}/flow/1.same")
    came = _payloads(out(root, profile))
    return {each for each in [*between, *came] if each[0] not in fed} | (set(came) - set(between))


def _payloads(path: str) -> list[Any]:
    try:
        with shmq.open(path, create=False, read_only=True, trusted=True) as queue:
            return [message.payload for message in queue.reader()]
    except shmq.NotFound:
        return []


def record(profile: Profile, root: str, seed: int, shim: Shim, broken: str = "") -> History:
    """What a run of that profile does with that seed, below *root*; by a library with that fault, if one is given."""
    os.makedirs(root, exist_ok=True)
    small_groups()
    recorder = Recorder(root, broken)

    class Recorded(InProcess):
        chance = random.Random(f"{profile.name} {seed}")

    Recorded.recorder = recorder
    with here(Recorded), shim.listening(recorder.heard):
        run_all(root, profile)
        recorder.say("over")
    return recorder.history

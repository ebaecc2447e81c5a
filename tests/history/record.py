"""
Histories from real processes: producers and consumers that are killed, stopped and started again at random.

Each writes a line before every call and a line after it, straight to a file of its own, so that what was in flight when
it was killed is known. The seed decides who does what; the machine decides when.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import itertools
import mmap
import os
import random
import shutil
import signal
import tempfile
import time
import zlib
from pathlib import Path

import shmq
from tests.history import judge
from tests.history.processes import PATIENCE, Process, stuck

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


@dataclasses.dataclass
class Shape:
    """What a history is made of; `of` draws one from a seed."""

    seed: int
    operations: int = 600  # put calls, of all producers together
    producers: int = 2
    autos: int = 1
    explicits: int = 1
    chunk_bytes: int = 16384
    large: int = 2000
    pause: float = 0.0005
    kill_every: float = 0.02  # seconds between two kills, on average
    stop_every: float = 0.03
    die_in_claim: float = 0.005
    inherit: bool = False
    seconds: float = 0.0  # go on for so long, instead of so many operations
    most: int = 20  # messages in one call
    retention: str = "acked"

    @classmethod
    def of(cls, seed: int, operations: int) -> Shape:
        """A shape that nobody chose."""
        dice = random.Random(seed)
        processes = dice.choice([2, 2, 3, 4, 4, 5, 6, 8, 12, 16])
        producers = dice.randint(1, max(processes - 1, 1))
        consumers = max(processes - producers, 1)
        autos = dice.randint(0, consumers)
        return cls(
            seed,
            operations,
            producers=producers,
            autos=autos,
            explicits=consumers - autos,
            chunk_bytes=dice.choice([16384, 16384, 65536, 1 << 20]),
            large=dice.choice([100, 2000, 30_000]),
            pause=dice.choice([0, 0.0002, 0.002]),
            kill_every=dice.choice([0.005, 0.02, 0.1, 1000]),
            stop_every=dice.choice([0.005, 0.05, 1000]),
            die_in_claim=dice.choice([0, 0.005, 0.03]),
            inherit=dice.random() < 0.3,
            retention=dice.choice(["acked", "forever"]),
        )


@dataclasses.dataclass
class Figures:
    """What happened."""

    operations: int = 0
    messages: int = 0
    deliveries: int = 0
    kills: int = 0
    stops: int = 0
    padded: int = 0
    longest_pause_s: float = 0.0
    seconds: float = 0.0

    def add(self, other: Figures) -> None:
        """Together with *other*."""
        for field in dataclasses.fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, max(mine, its) if field.name == "longest_pause_s" else mine + its)


FINISHED, GATE = 256, 511
"""In the memory that all share: put calls of each producer, from here on whether it has finished, and may it end."""


class Words:
    """The file in which a process says what it does. Killed at any instant, it keeps every line written before."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def begin(self, verb, what=""):
        os.write(self._fd, f"{verb} {time.monotonic_ns()} {what}\n".encode())

    def end(self, outcome, what=""):
        os.write(self._fd, f"= {time.monotonic_ns()} {outcome} {what}\n".encode())

    def error(self, problem):
        self.end("error", f"{type(problem).__name__}: {problem}".replace("\n", " "))


def payload_of(value: int, size: int) -> bytes:
    """*size* bytes that belong to no other value."""
    unit = value.to_bytes(8, "little")
    return (unit * (size // 8 + 1))[:size]


def triple(index, payload) -> str:
    where = "" if index is None else f"{index:x}"
    return f"{where}:{int.from_bytes(payload[:8], 'little'):x}:{zlib.crc32(payload):x}"


# ---------------------------------------------------------------- producers
class ProducerWork:
    def __init__(self, shape, number, life, path, inherited, words, done, over):
        self.shape, self.path, self.inherited, self.words = shape, path, inherited, words
        self.dice = random.Random(f"{shape.seed} producer {number} {life}")
        self.value = number << 48 | life << 32
        self.number, self.done, self.over = number, done, over

    def __call__(self, tell):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        queue = self.inherited or shmq.open(self.path)
        while not self.over(self.number):
            self.done[self.number] += 1
            self.operate(queue)
            if self.dice.random() < 0.2 and self.shape.pause:
                time.sleep(self.dice.random() * self.shape.pause * 10)
            if self.dice.random() < 0.01:
                queue.close()
                queue = shmq.open(self.path)
        # Its end, or its close, would ring the bell; consumers must come to the end by its puts alone.
        self.done[FINISHED + self.number] = 1
        while not self.done[GATE]:
            time.sleep(0.002)
        queue.close()

    def message(self):
        self.value += 1
        size = 8 + (self.dice.randrange(self.shape.large) if self.dice.random() < 0.05 else self.dice.randrange(100))
        return payload_of(self.value, size)

    def operate(self, queue):
        chance = self.dice.random()
        if chance < 0.7:
            self.announced("put", [self.message()], lambda payloads: queue.put(payloads[0]))
        elif chance < 0.85:
            batch = [self.message() for _ in range(self.dice.randint(1, self.shape.most))]
            self.announced("many", batch, lambda payloads: queue.put_many(payloads)[0])
        else:
            self.announced("reserve", [self.message()], lambda payloads: self.reserve(queue, payloads[0]))

    def announced(self, verb, payloads, call):
        self.words.begin(verb, ",".join(triple(None, one)[1:] for one in payloads))
        try:
            index = call(payloads)
        except Exception as problem:  # noqa: BLE001  # the judge says which are allowed: none
            self.words.error(problem)
        else:
            if index is not None:
                self.words.end("ok", index)

    def reserve(self, queue, payload):
        slot = queue.reserve(len(payload) + self.dice.randrange(40), key=b"k" * self.dice.randrange(9))
        if self.dice.random() < self.shape.die_in_claim * 6:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.dice.random() < 0.2:
            time.sleep(self.shape.pause)
        slot.buffer[: len(payload)] = payload
        try:
            if self.dice.random() < 0.1:
                slot.abort()
                self.words.end("aborted", slot.index)
                return None
            return slot.commit(len(payload))
        except shmq.Fenced:
            self.words.end("fenced", slot.index)
            return None


# ---------------------------------------------------------------- consumers
class ConsumerWork:
    def __init__(self, shape, name, life, path, inherited, words):
        self.shape, self.name, self.path, self.inherited, self.words = shape, name, path, inherited, words
        self.dice = random.Random(f"{shape.seed} {name} {life}")
        self.mode = name.rstrip("0123456789")
        self.pending = []

    def __call__(self, tell):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        self.queue = self.inherited or shmq.open(self.path)
        self.open()
        while True:
            try:
                if not self.operate():
                    break
            except Exception as problem:  # the judge says which are allowed
                self.words.error(problem)
                raise
            if self.dice.random() < 0.01:
                self.close()
                self.open()
        self.acknowledge(len(self.pending))
        self.close()

    def open(self):
        if self.dice.random() < 0.3:
            self.queue.close()
            self.queue = shmq.open(self.path)
        self.words.begin("open")
        self.consumer = self.queue.consumer(self.name, ack=self.mode)
        self.words.end("ok", self.consumer.head)

    def close(self):
        self.pending.clear()
        self.words.begin("close")
        self.consumer.close()
        self.words.end("ok")

    def operate(self):
        """False once the queue is shut down and drained."""
        if self.mode == "explicit" and self.dice.random() < 0.5:
            self.acknowledge(self.dice.randint(0, len(self.pending)))
        timeout = self.dice.choice([0, 0.001, 0.05, None])
        if timeout is None or len(self.pending) > 100:
            self.acknowledge(len(self.pending))  # who waits for ever must not be waited for
        limit = self.dice.choice([1, 1, 2, self.shape.most])
        verb = self.dice.choice(["get", "take"])
        self.words.begin(verb, limit)
        try:
            seen = self.get(limit, timeout) if verb == "get" else self.take(limit, timeout)
        except shmq.Empty:
            self.words.end("empty")
        except shmq.ShutDown:
            self.words.end("shutdown")
            return False
        else:
            self.words.end("ok", ",".join(seen))
        return True

    def get(self, limit, timeout):
        one_by_one = limit == 1
        messages = [self.consumer.get(timeout)] if one_by_one else self.consumer.get_many(limit, timeout)
        if self.mode == "explicit":
            self.pending += messages
        return [triple(message.index, message.payload) for message in messages]

    def take(self, limit, timeout):
        payloads = [self.consumer.take(timeout)] if limit == 1 else self.consumer.take_many(limit, timeout)
        return [triple(None, payload) for payload in payloads]

    def acknowledge(self, count):
        if not count or self.mode != "explicit":
            return
        if self.dice.random() < 0.3:
            self.dice.shuffle(self.pending)
        now, self.pending = self.pending[:count], self.pending[count:]
        self.words.begin("ack", ",".join(str(message.index) for message in now))
        self.consumer.ack(*now)
        self.words.end("ok")


# ---------------------------------------------------------------- the one who starts and kills them
class Recorder:
    """Runs one history. `record` is all there is to call."""

    def __init__(self, shape: Shape, directory: str):
        self.shape, self.directory = shape, directory
        self.dice = random.Random(f"{shape.seed} recorder")
        self.path = f"{directory}/q"
        options = shmq.Options(chunk_bytes=shape.chunk_bytes, retention=shmq.Retention(shape.retention))
        self.queue = shmq.open(self.path, options=options)
        # What all names have finished is retired, so one more name writes the log down as it comes.
        self.scribe = self.queue.consumer("scribe", ack="explicit")
        self.log = []
        self.said = []
        self.done = memoryview(mmap.mmap(-1, 4096)).cast("Q")
        self.until = time.monotonic() + shape.seconds
        self.lives = {}
        self.running = {}  # role -> (process name, Process)
        self.order = {}  # role -> process names
        self.deaths = {}
        self.problems = []
        self.figures = Figures()

    def write_down(self):
        """Whatever is there now."""
        with contextlib.suppress(shmq.Empty, shmq.ShutDown):
            while True:
                messages = self.scribe.get_many(1000, timeout=0)
                for message in messages:
                    payload = message.payload
                    self.log.append((message.index, int.from_bytes(payload[:8], "little"), zlib.crc32(payload)))
                self.scribe.ack(*messages)

    def over(self, number):
        if self.shape.seconds:
            return time.monotonic() > self.until
        return self.done[number] >= self.shape.operations // self.shape.producers

    def start(self, role):
        life = self.lives[role] = self.lives.get(role, -1) + 1
        name = f"{role}.{life}"
        self.order.setdefault(role, []).append(name)
        words = Words(f"{self.directory}/{name}.log")
        inherited = self.queue if self.shape.inherit else None
        if role.startswith("producer"):
            number = int(role.removeprefix("producer"))
            work = ProducerWork(self.shape, number, life, self.path, inherited, words, self.done, self.over)
        else:
            work = ConsumerWork(self.shape, role, life, self.path, inherited, words)
        self.running[role] = (name, Process(work))
        os.close(words._fd)

    def reap(self, role, *, wait=False):
        """Notice its end; True when it ended by itself."""
        name, process = self.running[role]
        if not wait and process.ended is None:
            pid, status = os.waitpid(process.outer, os.WNOHANG)
            if not pid:
                return False
            process.ended = os.waitstatus_to_exitcode(status)
            os.close(process._tell)
        try:
            status = process.wait()
        except TimeoutError as problem:
            self.hang(f"{name}: {problem}")
            process.kill()
            status = process.wait()
        self.deaths[name] = time.monotonic_ns()
        del self.running[role]
        if status == 0:
            del self.deaths[name]
            return True
        if status != -signal.SIGKILL:
            self.problems.append(f"{name} ended with {status}")
        self.figures.kills += 1
        return False

    def hang(self, what):
        self.problems.append(f"hang: {what}")
        for name, process in self.running.values():
            self.problems.append(f"  {name}: {stuck(process.pid)}")
            os.kill(process.pid, signal.SIGCONT)
            os.kill(process.pid, signal.SIGUSR1)  # says where it is, on stderr
        time.sleep(0.2)

    def record(self):
        producers = [f"producer{n}" for n in range(self.shape.producers)]
        consumers = [f"auto{n}" for n in range(self.shape.autos)] + [
            f"explicit{n}" for n in range(self.shape.explicits)
        ]
        for name in consumers:  # there from the beginning, or what the scribe has finished may be gone before
            self.queue.consumer(name, ack=name.rstrip("0123456789")).close()
        began = time.monotonic()
        for role in [*producers, *consumers]:
            self.start(role)
        self.disturb(producers, consumers)
        self.drain(consumers)
        history = self.collect(consumers)
        self.figures.seconds = time.monotonic() - began
        return history

    def disturb(self, producers, consumers):
        """Kill and stop, until all producers have done their share."""
        shape, dice = self.shape, self.dice
        unfinished = set(producers)
        deadline = time.monotonic() + PATIENCE + shape.seconds + shape.operations / 100
        next_kill = time.monotonic() + dice.expovariate(1 / shape.kill_every)
        next_stop = time.monotonic() + dice.expovariate(1 / shape.stop_every)
        while unfinished:
            now = time.monotonic()
            if now > deadline:
                self.hang(f"producers {sorted(unfinished)} do not finish")
                break
            unfinished -= {role for n, role in enumerate(producers) if self.done[FINISHED + n]}
            for role in list(self.running):
                process = self.running[role][1]
                if self.reap(role):
                    unfinished.discard(role)
                    self.problems.append(f"{role} ended before the queue was shut down")
                elif process.ended is not None:
                    self.start(role)
            if self.running and now >= next_kill:
                next_kill = now + dice.expovariate(1 / shape.kill_every)
                role = dice.choice(list(self.running))
                self.running[role][1].kill()
                if not self.reap(role, wait=True):
                    self.start(role)
            if self.running and now >= next_stop:
                next_stop = now + dice.expovariate(1 / shape.stop_every)
                self.figures.stops += 1
                process = dice.choice(list(self.running.values()))[1]
                process.stop()
                time.sleep(dice.random() * 0.01)
                process.go_on()
            self.write_down()
            time.sleep(0.001)

    def last_words(self):
        """Two more messages, each after a silence in which consumers fall asleep for as long as it takes."""
        for value in (1 << 60, 1 << 60 | 1):
            time.sleep(0.08)
            payload = payload_of(value, 20)
            put = judge.Operation("recorder", "put", time.monotonic_ns(), sent=((value, zlib.crc32(payload)),))
            put.indexes = (self.queue.put(payload),)
            put.end, put.outcome = time.monotonic_ns(), "ok"
            self.said.append(put)

    def drain(self, consumers):
        """Nobody puts any more. Every consumer must come to the end by itself, asleep or not; then shut down."""
        self.last_words()
        self.write_down()
        end = self.log[-1][0] + 1 if self.log else 0
        deadline = time.monotonic() + PATIENCE
        while not self.problems:
            heads = self.queue.consumers()
            if all(name in heads and heads[name].head >= end for name in consumers):
                break
            if time.monotonic() > deadline:
                self.hang(f"consumers do not come to index {end}: { {name: heads.get(name) for name in consumers} }")
            for role in [role for role in self.running if not self.reap(role)]:
                if role not in self.running:
                    self.start(role)
            time.sleep(0.002)
        self.done[GATE] = 1
        self.queue.shutdown()
        for role in list(self.running):
            if self.problems:
                self.running[role][1].kill()
            if not self.reap(role, wait=True) and not self.problems:
                self.problems.append(f"{role} was killed by nobody of us")

    def collect(self, consumers):
        operations = {}
        for role, names in self.order.items():
            operations[role] = []
            for name in names:
                operations[role] += judge.parse(Path(f"{self.directory}/{name}.log").read_text(), name)
        names = {role: operations[role] for role in consumers}
        self.write_down()
        log, end = self.log, self.queue.next_index
        if self.shape.retention == "forever":
            read = [message.index for message in self.queue.reader()]
            if read != [index for index, _, _ in log]:
                self.problems.append("a reader and a consumer see different logs")
        self.scribe.close()
        self.queue.close()
        self.figures.operations = sum(map(len, operations.values()))
        self.figures.messages = len(log)
        self.figures.padded = end - len(log)
        self.figures.deliveries = sum(len(one.seen) for all_of in names.values() for one in all_of)
        self.figures.longest_pause_s = max(map(longest_pause, names.values()), default=0.0)
        return judge.History(
            puts=self.said + [one for role, all_of in operations.items() if role not in names for one in all_of],
            names=names,
            modes={role: role.rstrip("0123456789") for role in consumers},
            deaths=self.deaths,
            log=log,
            end=end,
            drained=not self.problems,
            problems=self.problems,
        )


def longest_pause(operations) -> float:
    """Seconds between two deliveries of a name, its deaths and restarts included."""
    times = [one.end for one in operations if one.seen]
    return max((after - before for before, after in itertools.pairwise(times)), default=0) / 1e9


def record(shape: Shape, keep: bool = False):
    """(history, figures, directory). The directory is gone unless *keep*."""
    directory = tempfile.mkdtemp(prefix="shmq-history-", dir=MEMORY)
    recorder = Recorder(shape, directory)
    try:
        return recorder.record(), recorder.figures, directory
    finally:
        for _, process in recorder.running.values():
            process.kill()
            process.wait()
        if not keep:
            shutil.rmtree(directory)

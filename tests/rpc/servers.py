"""Servers in processes of their own, with the methods that the tests call."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime  # noqa: TC003  # annotations are read
import itertools
import os
import signal
import time

from support import Child

import shmq.rpc


@dataclasses.dataclass
class Point:
    """What a program has."""

    x: int
    y: int = 0


class Sorrow(Exception):
    """An error of the program's own, which both sides know."""


class Grief(Exception):
    """One that nobody registered."""


class Mute(Exception):
    """One that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


shmq.rpc.register_error(Sorrow)
PROBLEMS = {
    "value": ValueError("no", 7),
    "key": KeyError("k"),
    "os": FileNotFoundError(2, "No such file", "here"),
    "sorrow": Sorrow("so", 1),
    "grief": Grief("so"),
    "mute": Mute(1),
    "stop": StopIteration(3),
    "exit": SystemExit(3),
    "unicode": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "object": ValueError(object()),
    "empty": shmq.Empty("nothing here"),
    "time": TimeoutError("mine"),
}


def with_methods(server, note):  # noqa: C901  # one after the other
    """Serve them; *note* is a file that says which have run, one line each."""

    @server.method
    def add(a: int, b: int = 10) -> int:
        return a + b

    @server.method
    def anything(*rest, one=1, **more):
        return [list(rest), one, more]

    @server.method
    def named(a: int, *, b: str) -> list:
        return [a, b]

    @server.method
    def move(point: Point, by: float, when: datetime.datetime | None = None) -> Point:
        assert isinstance(point, Point)
        return Point(point.x + int(by), when.year if when else 0)

    @server.method
    def fail(which: str):
        raise PROBLEMS[which]

    @server.method
    def noted(word: str):
        with open(note, "a") as file:
            file.write(f"{word}\n")
        return word

    @server.method
    def sleep(seconds: float, word: str = "slept"):
        noted(f"{word} began")
        time.sleep(seconds)
        return noted(word)

    @server.method
    def pid():
        return os.getpid()

    @server.method
    def die(word: str = "died"):
        noted(word)
        os.kill(os.getpid(), signal.SIGKILL)

    @server.method
    def die_once(word: str):
        noted(word)
        if shmq.rpc.current().attempts == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return shmq.rpc.current().attempts

    @server.method
    def unsendable():
        return object()

    @server.method
    def echo(thing):
        return thing

    @server.method
    def seconds_left():
        return shmq.rpc.current().seconds_left

    @server.method(name="deep.er.add")
    def deeper(a: int, b: int) -> int:
        return a + b + 1000

    with_coroutines(server, noted)
    with_generators(server, noted)

    @server.method
    def stop():
        server.shutdown()
        return "stops"

    return server


def with_coroutines(server, noted):
    @server.method
    async def aadd(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    @server.method
    async def asleep(seconds: float, word: str = "slept"):
        noted(f"{word} began")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            noted(f"{word} was cancelled")
            raise
        return noted(word)

    @server.method
    async def afail(which: str):
        await asyncio.sleep(0)
        raise PROBLEMS[which]

    @server.method
    async def cancels_itself():
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    @server.method
    async def aleft():
        await asyncio.sleep(0)
        return shmq.rpc.current().seconds_left

    @server.method
    def until_cancelled(word: str):
        noted(f"{word} began")
        end = time.monotonic() + 20
        while not shmq.rpc.current().cancelled and time.monotonic() < end:
            time.sleep(0.01)
        return noted(f"{word} saw it")


def with_generators(server, noted):  # noqa: C901  # likewise
    @server.method
    def count(upto: int, bad: int = -1):
        for number in range(upto):
            if number == bad:
                raise ValueError("bad", number)
            yield number

    @server.method
    async def acount(upto: int, bad: int = -1):
        for number in range(upto):
            if number == bad:
                raise ValueError("bad", number)
            yield number

    @server.method
    def endless(word: str, size: int = 1):
        try:
            for number in itertools.count():
                yield [number, bytes(size)]
        finally:
            noted(f"{word} was closed")

    @server.method
    async def aendless(word: str):
        try:
            for number in itertools.count():
                yield number
                await asyncio.sleep(0)
        finally:
            noted(f"{word} was closed")

    @server.method
    def slow(word: str):
        noted(f"{word} began")
        yield os.getpid()
        time.sleep(20)
        yield 2

    @server.method
    def strange():
        yield 1
        yield object()


def serve(say, path, note, options):
    server = with_methods(shmq.rpc.Server(path, **options), note)
    signal.signal(signal.SIGTERM, lambda *_: server.shutdown())
    say("serves")
    with contextlib.suppress(KeyboardInterrupt):
        server.serve()
    say("over")
    server.close()


class Servers:
    """Some, at one path."""

    def __init__(self, path, note) -> None:
        self.path, self.note = str(path), str(note)
        self.children: list[Child] = []

    def start(self, count=1, **options) -> Child:
        """That many more; the last of them."""
        for _ in range(count):
            child = Child(serve, self.path, self.note, options)
            self.children.append(child)
            assert child.hear() == "serves"
        return self.children[-1]

    def notes(self) -> list[str]:
        """Which methods have run."""
        with contextlib.suppress(FileNotFoundError), open(self.note) as file:
            return file.read().split("\n")[:-1]
        return []

    def kill(self) -> None:
        for child in self.children:
            child.__exit__()

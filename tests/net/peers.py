"""A peer written without shmq.net: a socket, words of four bytes, and Chronicle's documents."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from support import DEADLINE, Child

from shmq import net
from shmq.formats import chronicle
from shmq.net import peer, rfc
from shmq.net.frames import Frames
from shmq.net.service import Service
from shmq.net.tokens import Everything

PROJECT = Path(__file__).parents[2]
FIXTURES = Path(os.environ.get("SHMQ_FIXTURES") or PROJECT.parent / "shared" / "fixtures")
META, MORE = 1 << 30, 1 << 31


def frame(body: bytes | str, flags: int = 0) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return struct.pack("<I", len(data) | flags) + data


def call(meta: str, *documents: str) -> bytes:
    """Meta-data and calls, in text; all but the last say that more follow."""
    last = len(documents) - 1
    return frame(meta, META) + b"".join(frame(each, MORE * (at < last)) for at, each in enumerate(documents))


def document(body: bytes):
    return chronicle.decode(body) if body[:1] >= b"\x80" else chronicle.parse(body)


def cut(data: bytes) -> list[tuple[int, object]]:
    """(flags, document) of each frame in *data*."""
    found, at = [], 0
    while at < len(data):
        (word,) = struct.unpack_from("<I", data, at)
        body = data[at + 4 : at + 4 + (word & META - 1)]
        found.append((word & (META | MORE), document(body)))
        at += 4 + len(body)
    return found


class Server:
    """`shmq serve` in a process of its own."""

    def __init__(self, root, *words: str, **options) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "shmq", "serve", str(root), *words],
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self.said = self.process.stderr.readline()
        self.places = self.said.partition(" at ")[2].split()

    @property
    def port(self) -> int:
        return int(next(each for each in self.places if each.startswith("tcp:")).rpartition(":")[2])

    @property
    def path(self) -> str:
        return next(each for each in self.places if each.startswith("unix:")).removeprefix("unix:")

    def end(self, number: int = signal.SIGTERM) -> str:
        """What it says until its end."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        if not self.process.stderr.closed:
            with self.process.stderr:
                self.said = self.process.stderr.read()
        self.process.wait(DEADLINE)
        return self.said

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)


class Forked:
    """A server in a fork of this process, which begins sooner than `shmq serve`."""

    def __init__(self, root, *listen: str, **options) -> None:
        def live(say):
            net.serve(root, listen or None, on_start=lambda places: say(" ".join(places)), **options)

        self.child = Child(live)
        self.places = self.child.hear().split()

    port, path = Server.port, Server.path

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit status."""
        self.child.signal(number)
        return self.child.join()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()


class Peer:
    """One connection."""

    def __init__(self, to: str | int, wrap=None) -> None:
        if isinstance(to, int):
            self.socket = socket.create_connection(("127.0.0.1", to), DEADLINE)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(DEADLINE)
            self.socket.connect(to)
        if wrap is not None:
            self.socket = wrap(self.socket)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def frame(self) -> tuple[int, object]:
        """(flags, document) of the next frame."""
        (word,) = struct.unpack("<I", self._exactly(4))
        return word & (META | MORE), document(self._exactly(word & META - 1))

    def reply(self) -> tuple[object, object]:
        """(tid, document) of the next reply."""
        flags, meta = self.frame()
        assert flags == META
        return meta["tid"], self.frame()[1]

    def ask(self, meta: str, data: str):
        """What is answered to one call."""
        self.send(call(f"{meta}\ntid: 7", data))
        tid, found = self.reply()
        assert tid == 7
        return found

    def create(self, what: str, name: str, more: str = "") -> dict:
        """What createAppender or createTailer answers."""
        return self.ask(f"csp: //host/{name}#Queue", f"{what}: {{ {more} }}")["reply"].value

    def is_left(self) -> str:
        """What the server says when it closes the connection."""
        said = ""
        try:
            while True:
                _, found = self.frame()
                said = found["bye"]["message"] if isinstance(found, dict) and "bye" in found else said
        except (EOFError, ConnectionError):
            return said

    def close(self) -> None:
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def given_frames() -> list[dict]:
    """The frames that the real library has made of the RFC's conversations."""
    place = FIXTURES / "chronicle" / "given" / "remote-frames" / "frames.json"
    if not place.exists():
        pytest.skip(f"no chronicle fixtures in {FIXTURES} (set SHMQ_FIXTURES)")
    return json.loads(place.read_text())


class Spoken:
    """A session without a socket: what is said goes in, what it answers is in `answered`."""

    def __init__(self, service: Service, rights=None) -> None:
        self.peer = peer.Peer("test", rights or Everything(), lambda: None)
        self.answered = bytearray()
        self.frames = Frames(service.limits.frame)
        self.session = rfc.Session(service, self.peer, self.answered.extend)

    def hear(self, data: bytes) -> None:
        for each in self.frames.feed(data):
            self.session.received(each)

    async def quiet(self) -> None:
        """Until nothing is under way."""
        async with asyncio.timeout(DEADLINE):
            while self.peer.requests:
                await asyncio.sleep(0.0005)
        assert self.peer.memory == 0

    async def replies(self, data: bytes) -> list[tuple[object, object]]:
        """(tid, document) of what is answered to it."""
        self.answered.clear()
        self.hear(data)
        await self.quiet()
        found = cut(bytes(self.answered))
        assert [flags & META for flags, _ in found] == [META, 0] * (len(found) // 2)
        return [(meta["tid"], data) for (_, meta), (_, data) in zip(found[::2], found[1::2], strict=True)]

    async def ask(self, meta: str, data: str):
        """What is answered to one call."""
        ((tid, found),) = await self.replies(call(f"{meta}\ntid: 9", data))
        assert tid == 9
        return found

    async def create(self, what: str, name: str, more: str = "") -> dict:
        """What createAppender or createTailer answers."""
        return (await self.ask(f"csp: //host/{name}#Queue", f"{what}: {{ {more} }}"))["reply"].value


@contextlib.contextmanager
def serving(root, **options):
    service = Service(root, **options)
    try:
        yield service
    finally:
        service.close()


def speak(root, conversation, rights=None, **options):
    """What *conversation*, a coroutine function of a `Spoken`, returns."""

    async def run():
        spoken = Spoken(service, rights)
        try:
            return await conversation(spoken)
        finally:
            await spoken.session.closed()

    with serving(root, **options) as service:
        return asyncio.run(run())


def refusal(found) -> tuple[str, str]:
    """(name, message) of an exception."""
    told = found["exception"]
    assert told.value["stackTrace"] == []
    return told.type, told.value["message"]

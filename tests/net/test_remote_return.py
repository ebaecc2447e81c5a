"""What a client does when the server parts, or is cut off, while the client comes back."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

import shmq
from shmq.net import hello, packing
from shmq.net.frames import Frames, framed

GREETING = b"header-reply: { wire-format: Shmq1 }\n"
LIKE = packing.encode(["hello", 1])
"""What our own clients send is no text, so the server takes it for the other wire and parts in that."""


class Script:
    """A server whose answers are written down: for each connection, what it makes of a request."""

    def __init__(self, path, *answers) -> None:
        self.path = path
        self.asked: list[list[list]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, args=(answers,), daemon=True)
        self._thread.start()

    def _serve(self, answers) -> None:
        for answer in answers:
            line, _ = self._listener.accept()
            with line, contextlib.suppress(OSError):
                self.asked.append([])
                self._talk(line, answer, self.asked[-1])

    def _talk(self, line, answer, asked) -> None:
        frames, is_greeted = Frames(1 << 20), False
        while data := line.recv(1 << 16):
            for frame in frames.feed(data):
                if not is_greeted:
                    is_greeted = True
                    line.sendall(framed(GREETING))
                    continue
                request = packing.decode(frame.body)
                asked.append(request)
                said = answer(request)
                if said is None:
                    return
                line.sendall(said)

    def verbs(self) -> list[list[str]]:
        """What was asked, connection by connection."""
        return [[request[0] for request in each if request[0] not in {"ping", "bye"}] for each in self.asked]

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self._listener.close()


def told(resumed: bool) -> dict:
    return {
        "version": 1,
        "resumed": resumed,
        "id": "i",
        "codec": "bytes",
        "durability": "process",
        "frame": 1 << 20,
        "grace": 10.0,
    }


def ok(request, value=None) -> bytes:
    return framed(packing.encode(["ok", request[1], value]))


def knows_nobody(request) -> bytes:
    """A server that has begun anew."""
    verb = request[0]
    if verb == "hello":
        return ok(request, told(resumed=False))
    if verb == "consumer":
        return ok(request, ["c", "auto", False])
    if verb in {"again", "credit"} and request[4]:
        columns = [[7, 1], packing.numbers("q", [1]), None, None, None, None, None, *packing.joined([b"seven"])]
        return framed(packing.encode(["messages", 0, request[2], 1, columns, None, 1]))
    return ok(request) if request[1] else b""


def until_credit(request) -> bytes | None:
    """It is killed when it is asked for messages."""
    return None if request[0] == "credit" else knows_nobody(request)


@pytest.fixture
def scripted(tmp_path):
    return lambda *answers: Script(tmp_path / "s", *answers)


def test_a_server_that_parts_while_a_consumer_is_opened_again_breaks_nothing(scripted):
    """The client meets one that is ending, then one that lives: it goes on there as if it had met that at once."""

    def parts(request):
        return framed(hello.bye("the server ends", LIKE)[4:]) if request[0] == "consumer" else knows_nobody(request)

    def parts_at_once(request):
        return framed(hello.bye("the server ends", LIKE)[4:])

    with (
        scripted(until_credit, parts, parts_at_once, knows_nobody) as server,
        shmq.net.connect(f"csp+unix://{server.path}//orders", timeout=5) as queue,
    ):
        with queue.consumer("c") as consumer:
            assert consumer.take(timeout=20) == b"seven"
        assert [each[0] for each in server.verbs()] == ["hello"] * 4


def test_who_was_cut_off_half_way_back_opens_the_rest_of_its_consumers(scripted):
    """A server that knows the session of that half way, and not the consumers, would never send anything."""
    known = []

    def half_way(request):
        known.append(request)
        return None if request[0] == "consumer" else knows_nobody(request)

    def knows_the_session(request):
        if request[0] == "hello":
            return ok(request, told(resumed=request[2]["again"]))
        return knows_nobody(request)

    with (
        scripted(until_credit, half_way, knows_the_session) as server,
        shmq.net.connect(f"csp+unix://{server.path}//orders", timeout=5) as queue,
    ):
        with queue.consumer("c") as consumer:
            assert consumer.take(timeout=20) == b"seven"
        assert server.verbs()[2][:2] == ["hello", "consumer"]


def test_what_a_server_says_when_it_refuses_is_one_line(scripted):
    plain = hello.bye("too many\n are connected")
    assert hello.parting(plain[4:]) == "too many are connected"
    assert hello.parting(hello.bye("the server ends", LIKE)[4:]) == "the server ends"
    assert hello.parting(GREETING) is None
    assert hello.parting(packing.encode(["ok", 1, None])) is None

"""
A connection from nothing to where requests can go: the wire is agreed on, the session is greeted, and what the server
has forgotten since is opened again. All of it blocks, and is done by one thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.net import hello, packing
from shmq.net.frames import BadFrame, Frame, Frames, framed

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterator

    from shmq.net.client.address import Address

_FRAME = (1 << 30) - 1
_READ = 1 << 18
_WIRE = "Shmq1"


class Refused(Exception):
    """The server has answered, and will not have us. Its cause is the error for whoever asked."""


class Line:
    """A connected socket, cut into messages of the protocol."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, timeout: float, tids: Iterator[int]) -> None:
        """
        Connect.

        Args:
            timeout: seconds for all that is done before `unblock`.
            tids: numbers for requests, which the session has not used yet.

        Raises:
            OSError: nobody is there.
        """
        self._until = time.monotonic() + timeout
        self.socket: socket.socket = address.dial(timeout)
        if tls is not None:
            try:
                self.socket = tls.wrap_socket(self.socket, server_hostname=address.host or None)
            except BaseException:
                self.socket.close()
                raise
        self._frames = Frames(_FRAME)
        self._come: list[Frame] = []
        self._tids = tids

    def ask(self, message: list[Any]) -> Any:
        """
        Return what the server answers to one request; nothing else is under way.

        Raises:
            OSError: the connection is gone, or no answer came in time.
            ShmqError, ValueError: what it answers with.
        """
        verb, *given = message
        tid = next(self._tids)
        self.send(framed(packing.encode([verb, tid, *given])))
        while True:
            answer = _decoded(self.frame())
            if answer[1] != tid:
                continue
            if answer[0] == "error":
                raise packing.raised(*answer[2:5])
            return answer[2]

    def send(self, data: bytes) -> None:
        """Send all of it, in time."""
        self.socket.settimeout(max(self._until - time.monotonic(), 0.001))
        self.socket.sendall(data)

    def frame(self) -> Frame:
        """Return the next frame, in time."""
        while not self._come:
            self.socket.settimeout(max(self._until - time.monotonic(), 0.001))
            data = self.socket.recv(_READ)
            if not data:
                raise ConnectionResetError("the server has closed the connection")
            self._come += self._frames.feed(data)
        return self._come.pop(0)

    # ---- from here on nothing blocks
    def unblock(self) -> None:
        """Have the socket never wait."""
        self.socket.setblocking(False)

    def messages(self) -> list[list[Any]] | None:
        """
        Return what has come; None when there is nothing to read now.

        Raises:
            OSError, BadFrame, BadRequest: the connection is gone, or what came is nothing.
        """
        come, self._come = self._come, []
        if not come:
            try:
                data = self.socket.recv(_READ)
            except (BlockingIOError, InterruptedError):
                return None
            except OSError as problem:
                if type(problem).__name__ in {"SSLWantReadError", "SSLWantWriteError"}:
                    return None
                raise
            if not data:
                raise ConnectionResetError("the server has closed the connection")
            come = self._frames.feed(data)
        return [_decoded(frame) for frame in come]

    def send_some(self, data: memoryview | bytes) -> int:
        """Return how many bytes of it went out without waiting."""
        try:
            return self.socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as problem:
            if type(problem).__name__ in {"SSLWantReadError", "SSLWantWriteError"}:
                return 0
            raise

    def part(self, timeout: float) -> None:
        """Say good-bye, and wait until the server has let go of all."""
        self._until = time.monotonic() + timeout
        self.ask(["bye"])

    def close(self) -> None:
        """Close it. Closing twice is fine."""
        self.socket.close()


def _decoded(frame: Frame) -> list[Any]:
    """
    Return a message of the protocol.

    Raises:
        ConnectionResetError: the server parts, and says why.
        BadRequest: it is none.
    """
    try:
        return packing.decode(frame.body)
    except packing.BadRequest:
        why = hello.parting(frame.body)
        if why is None:
            raise
        raise ConnectionResetError(f"the server has closed the connection: {why}") from None


def agree(line: Line, token: str | None) -> None:
    """
    Have the server speak our protocol on that connection.

    Raises:
        Refused: it speaks another one, or wants a token, or another one.
        OSError: the connection is gone, or the server has no place for it now.
    """
    shown = f', token: "{token}"' if token is not None else ""
    line.send(framed(f"header: {{ wire-formats: [ {_WIRE} ]{shown} }}\n".encode()))
    body = line.frame().body
    why = hello.parting(body)
    if why is not None:
        if "token" in why:
            raise Refused from errors.NotFound(f"the server refuses this client: {why}")
        raise ConnectionRefusedError(f"the server refuses the connection: {why}")
    reply = body.decode("utf-8", "replace")
    if "header-reply" not in reply or _WIRE not in reply:
        raise Refused from errors.BadFormat(f"the server does not speak {_WIRE}; it answers {reply.strip()[:200]!r}")


def greet(line: Line, told: dict[str, Any]) -> dict[str, Any]:
    """
    Say who we are; return what the server says of itself and of the queue.

    Raises:
        Refused: it will not have us, and says why.
        OSError: the connection is gone.
    """
    try:
        answer = line.ask(["hello", {"version": packing.VERSION, "features": [], **told}])
    except packing.BadRequest as problem:
        raise Refused from errors.BadFormat(f"the server answers with something that is not an answer: {problem}")
    except (errors.ShmqError, ValueError, BadFrame) as problem:
        raise Refused from problem
    if not isinstance(answer, dict) or answer.get("version") != packing.VERSION:
        raise Refused from errors.BadFormat(f"the server answers with a version that is unknown here: {answer!r:.200}")
    return answer

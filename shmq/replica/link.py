"""
Pieces through a pair of byte streams: each in a frame, a word of four bytes that says how long its body is, as all of
shmq's frames begin. The body is a CRC-32C of the piece, and the piece. Both numbers are little-endian.

The checksum of a message goes with it from producer to disk; this one is for all else.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from shmq import _native, errors
from shmq.closable import Closable
from shmq.replica.pieces import Back, There

if TYPE_CHECKING:
    from shmq.replica.pieces import Refused

_HEAD = struct.Struct("<II")
_CRC_BYTES = 4
FRAME_MAX = 96 << 20
"""More than any piece has: the largest are the notes of what was put with dedup."""
_AT_ONCE = 1 << 20
_ERRORS = {
    name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, errors.ShmqError)
}

to_follower = msgspec.msgpack.Decoder(There)
to_source = msgspec.msgpack.Decoder(Back)


class Broken(ConnectionError):
    """The link ended, or what came through it is none of ours."""


class Link(Closable):
    """One end of a link. One thread sends, and one receives."""

    def __init__(self, sock: socket.socket, decoder: Any) -> None:
        """*decoder*: for what comes; `to_follower` or `to_source`."""
        self._socket = sock
        self._decoder = decoder
        self._encoder = msgspec.msgpack.Encoder()
        self._sending = threading.Lock()
        sock.settimeout(None)
        with contextlib.suppress(OSError):  # of no use between processes of one machine
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, piece: There | Back) -> None:
        """
        Send one piece.

        Raises:
            Broken: nobody takes it any more.
        """
        body = self._encoder.encode(piece)
        try:
            with self._sending:
                self._socket.sendall(_HEAD.pack(_CRC_BYTES + len(body), _native.crc32c(body)) + body)
        except OSError as problem:
            raise Broken(f"the link ended: {problem.strerror or problem}") from None

    def receive(self) -> Any:
        """
        The next piece.

        Raises:
            Broken: it ended, perhaps in the middle of a piece, or that is none.
        """
        length, crc = _HEAD.unpack(self._exactly(_HEAD.size))
        if not _CRC_BYTES < length <= FRAME_MAX:
            raise Broken(f"the link is of no use: a piece of {length:,} bytes was announced")
        body = self._exactly(length - _CRC_BYTES)
        if _native.crc32c(body) != crc:
            raise Broken("the link is of no use: a piece was changed on its way")
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise Broken(f"the link is of no use: a piece is none ({problem})") from None

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            try:
                part = self._socket.recv(min(count, _AT_ONCE))
            except OSError as problem:
                raise Broken(f"the link ended: {problem.strerror or problem}") from None
            if not part:
                raise Broken("the link ended")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def has_more(self) -> bool:
        """Whether there is something to receive now."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def end(self) -> None:
        """Have whoever sends or receives find that it ended; from any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it."""
        self.end()
        self._socket.close()


def raised(refused: Refused) -> errors.ShmqError:
    """The error that the other side had."""
    kind = _ERRORS.get(refused.error, errors.ShmqError)
    return kind(refused.text)

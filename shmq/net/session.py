"""
What one connection is at the level of requests: frames go in, replies come out, nothing here knows of sockets.

There are two: that of Chronicle's RFC (`rfc.Session`), and that of our own client (`shmq1.Session`), which a connection
speaks after its first data document was `header: { wire-formats: [ Shmq1, … ] }` and the answer, a frame of data alone,
`header-reply: { wire-format: Shmq1 }`. A token stands in that header, as `token`. Whatever is answered is answered in
the wire, text or binary, in which it was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.net.frames import Frame
    from shmq.net.peer import Peer
    from shmq.net.service import Service


class Session(Protocol):
    """One connection's requests. Made in the loop, and used there alone."""

    def __init__(self, service: Service, peer: Peer, send: Callable[[bytes], None]) -> None:
        """*send* takes the bytes of frames; it never blocks, and does nothing when the connection is gone."""

    def received(self, frame: Frame) -> None:
        """Take one frame, without blocking; what it asks is answered by `send`, now or later."""

    async def closed(self) -> None:
        """The connection is gone: let go of what this session holds."""

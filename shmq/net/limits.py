"""What a peer may cost: how much it may send, ask for at once, and leave unread, and how long it may be silent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults are those of a server."""

    frame: int = 16 << 20
    """Bytes of one frame."""
    batch: int = 1000
    """Messages in one reply."""
    batch_bytes: int = 1 << 20
    """Bytes of their payloads; one message may have more."""
    requests: int = 1000
    """Requests of one peer that are not answered yet; further ones are not read meanwhile."""
    memory: int = 64 << 20
    """Bytes of those requests."""
    rate: int = 50_000
    """Frames of one peer that are taken in a second."""
    unsent: int = 1 << 20
    """Bytes that a peer may leave unread before nothing of it is read either."""
    peers: int = 256
    """Connections at a time."""
    channels: int = 1000
    """Appenders and tailers of one connection, together."""
    hello: float = 5.0
    """Seconds in which the first frame must come."""
    half: float = 30.0
    """Seconds for the rest of a frame that has begun, and for a peer that leaves replies unread to read on."""
    idle: float = 300.0
    """Seconds without a frame, when nothing is under way."""
    tailer: float = 600.0
    """Seconds after which a tailer that nobody asks is forgotten."""
    unused: float = 30.0
    """Seconds after which a queue that nobody uses is closed; puts into it are none of its uses, once answered."""
    wait: float = 60.0
    """Seconds that a request may wait for messages to come."""

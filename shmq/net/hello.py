"""The first documents of a connection: which wire is spoken, and by what right. Nothing here knows of sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.formats import chronicle
from shmq.net import wires
from shmq.net.frames import framed

if TYPE_CHECKING:
    from collections.abc import Collection

    from shmq.net.frames import Frame

MOST = 4096
"""Bytes of a greeting; what is longer is none."""


_SHOWN = 200
"""Characters of why a peer parts that are passed on."""


class Greeting(NamedTuple):
    """What a `header` asks for."""

    wire_formats: tuple[str, ...]
    token: str | None


def greeting(frame: Frame) -> Greeting | None:
    """Return the greeting that stands in a data document, None if it is something else."""
    if frame.meta or len(frame.body) > MOST:
        return None
    try:
        document = wires.of(frame.body).read(frame.body)
    except chronicle.NotWire:
        return None
    header = document.get("header") if isinstance(document, dict) else None
    if not isinstance(header, dict):
        return None
    named: dict[str, Any] = {str(key): value for key, value in header.items()}
    formats = named.get("wire-formats")
    token = named.get("token")
    return Greeting(
        tuple(each for each in (formats if isinstance(formats, list) else [formats]) if isinstance(each, str)),
        token if isinstance(token, str) else None,
    )


def answer(frame: Frame, asked: Greeting, offered: Collection[str]) -> tuple[str, bytes]:
    """
    Return the wire that is chosen, the first asked for that is *offered*, and the frame that says so.

    Who names no wire goes on in the one that the greeting is written in.
    """
    own = wires.of(frame.body)
    chosen = next((each for each in asked.wire_formats if each in offered), own.name)
    return chosen, framed(own.write({"header-reply": {"wire-format": chosen}}))


def parting(body: bytes) -> str | None:
    """Return why the peer ends the connection, in one line, if that is what *body* says."""
    try:
        document = wires.of(body).read(body)
    except chronicle.NotWire:
        return None
    told = document.get("bye") if isinstance(document, dict) else None
    if not isinstance(told, dict):
        return None
    return " ".join(str(told.get("message", "")).split())[:_SHOWN]


def bye(why: str, like: bytes = b"") -> bytes:
    """Return the frame that says why a connection ends, in the wire of *like*."""
    return framed(wires.of(like).write({"bye": {"message": why}}))

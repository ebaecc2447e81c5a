"""
Requests and replies as bytes: msgpack arrays, whose bodies stay packed until whoever they are for unpacks them.

    request     [version, client, sequence, method, mode, deadline in ns since boot or 0, arguments, named arguments]
    reply       [sequence, kind, body]
    cancel      [client, sequence]

What is read may come from anybody who may write there: lengths and ranges are checked while it is read, once.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from shmq.rpc.places import CLIENT_BYTES

VERSION = 1
_NUMBER_MAX = (1 << 63) - 1

AT_MOST_ONCE, AT_LEAST_ONCE, UNANSWERED = range(3)
"""Modes: not run twice; run until it is done; that too, and nobody waits for a reply."""

VALUE, RAISED, STREAMS, ITEM, END = range(5)
"""Kinds of replies: a result; an error; there is a stream; what a stream yields; it is over."""

_Client = Annotated[bytes, msgspec.Meta(min_length=CLIENT_BYTES, max_length=CLIENT_BYTES)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)]


class Request(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What a client asks for. Newer versions may append to it."""

    version: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    client: _Client
    sequence: _Number
    method: Annotated[str, msgspec.Meta(max_length=200)]
    mode: Annotated[int, msgspec.Meta(ge=AT_MOST_ONCE, le=UNANSWERED)]
    deadline_ns: _Number
    arguments: msgspec.Raw
    named: dict[str, msgspec.Raw] = {}


class Asked(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Of a request, only who asks: all that is read of one that is damaged, or of a newer version."""

    version: int
    client: _Client
    sequence: _Number


class Reply(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What a server answers."""

    sequence: _Number
    kind: Annotated[int, msgspec.Meta(ge=VALUE, le=END)]
    body: msgspec.Raw


class Cancel(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What nobody waits for any more."""

    client: _Client
    sequence: _Number


read_request = msgspec.msgpack.Decoder(Request).decode
read_asked = msgspec.msgpack.Decoder(Asked).decode
read_reply = msgspec.msgpack.Decoder(Reply).decode
read_cancel = msgspec.msgpack.Decoder(Cancel).decode
READY = b""
"""What a client puts into the queue for a stream, once it reads there."""

pack: Any = msgspec.msgpack.Encoder().encode
"""What holds nothing of a program's own."""

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What reading raises."""

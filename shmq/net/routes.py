"""Whom calls are for, and what their replies are known by: what a frame of meta-data says."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shmq.formats import chronicle
from shmq.net import uri, wires

if TYPE_CHECKING:
    from shmq.net.wires import Wire

_META_MOST = 4096
"""Bytes of meta-data, which is read in the loop."""

_LONG, _FLOAT = 1 << 63, 1 << 53
"""What is beyond is read as a float, which has lost digits; Java's own binary wire writes only those that lose none."""


class Route(NamedTuple):
    """What the last meta-data said."""

    uri: uri.Uri | None = None
    cid: int | None = None
    tid: int | str | None = None
    problem: str = ""
    """Why it could not be read."""
    system: bool = False
    """Whether there was none, or an empty one: what comes is for the session itself."""


SYSTEM = Route(system=True)


def route_of(body: bytes, wire: Wire) -> Route:
    """Return what meta-data says; what is wrong with it is told to each call behind it."""
    try:
        if len(body) > _META_MOST:
            return Route(problem=f"meta-data of {len(body)} bytes; {_META_MOST} are the most")
        document = wire.read(body)
        if not isinstance(document, dict):
            return Route(problem="meta-data is csp or cid, and tid")
        named = {str(key): value for key, value in document.items()}
        tid = named.get("tid")
        if not isinstance(tid, str):
            tid = _exact(tid, wire)
        csp, cid = named.get("csp"), named.get("cid")
        problem = "" if cid is None or wires.whole(cid) is not None else "cid is a whole number"
        if tid is None and "tid" in named:
            problem = "tid is a whole number, or a text"
            if wires.whole(named["tid"]) is not None:
                problem += "; of one with so many digits no reply could tell all"
        if csp is None and cid is None:
            problem = "meta-data says whom a call is for: csp or cid"
        found = uri.parse(csp) if isinstance(csp, str) else None
        return Route(found, wires.whole(cid), tid, problem)
    except (chronicle.NotWire, uri.BadUri) as bad:
        return Route(tid=_tid_in(body, wire), problem=str(bad))


def _tid_in(body: bytes, wire: Wire) -> int | None:
    """Return the tid of meta-data that is wrong otherwise, if it can be read."""
    try:
        document = wire.read(body)
    except chronicle.NotWire:
        return None
    return _exact(document.get("tid"), wire) if isinstance(document, dict) else None


def _exact(value: object, wire: Wire) -> int | None:
    """Return *value* as the whole number that was sent; None if it is none, or was rounded when it was read."""
    found = wires.whole(value)
    most = _FLOAT if isinstance(value, float) and wire is wires.Text else _LONG
    return found if found is not None and -most <= found < most else None

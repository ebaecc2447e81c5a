"""
A service's URI: `csp://host/path/name#View`. The host is whatever the client calls this server, and is not looked at.

`//host/name?view=Queue`, `/name`, `name#tailer/12` and Engine's `//name?view=QUEUE` are taken, too.
"""

from __future__ import annotations

import re
from typing import NamedTuple

QUEUE, APPENDER, TAILER = "queue", "appender", "tailer"
_VIEW = re.compile(r"(queue|appender|tailer(?:/([0-9]{1,18}))?)?", re.IGNORECASE)
_LONGEST = 4096


class BadUri(ValueError):
    """This is no URI of a service. The text is fit for the peer, who sent it."""


class Uri(NamedTuple):
    """One service."""

    base: str
    """What stands before the view, as it was sent."""
    name: str
    """The queue's name, not decoded yet."""
    view: str
    cid: int | None = None
    """The number of the tailer, where the URI has it."""

    def of(self, view: str) -> str:
        """Return the URI of another view of the same queue."""
        return f"{self.base}#{view}"


def parse(text: str) -> Uri:
    """
    Return what *text* names.

    Raises:
        BadUri: it is none.
    """
    if len(text) > _LONGEST:
        raise BadUri(f"a csp of {len(text)} characters")
    rest = text.strip()
    if rest[:4].lower() == "csp:":
        rest = rest[4:].lstrip()
    rest, _, view = rest.partition("#")
    base, _, query = rest.partition("?")
    for each in query.split("&"):
        key, _, value = each.partition("=")
        if key.lower() == "view":
            view = view or value
    found = _VIEW.fullmatch(view)
    name = _name(base)
    if found is None or not name:
        raise BadUri(f"{text[:200]!r} is the csp of no service: //host/NAME#Queue, #appender or #tailer is one")
    return Uri(base, name, view.partition("/")[0].lower() or QUEUE, int(found[2]) if found[2] else None)


def _name(base: str) -> str:
    if not base.startswith("//"):
        return base.lstrip("/")
    host, slash, path = base[2:].partition("/")
    return path.lstrip("/") if slash else host

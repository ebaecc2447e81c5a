"""What a URL names: a server and a stream, a topic or a queue there."""

from __future__ import annotations

import hashlib
import importlib
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from shmq.bridge.ends import Source, Target


class _Kind(NamedTuple):
    module: str
    extra: str
    like: str


_REDIS = _Kind("redis_streams", "redis", "redis://host:6379/STREAM")
_NATS = _Kind("jetstream", "nats", "nats://host:4222/STREAM")
_KINDS = {
    "redis": _REDIS,
    "rediss": _REDIS,
    "valkey": _REDIS,
    "nats": _NATS,
    "tls": _NATS,
    "kafka": _Kind("kafka", "kafka", "kafka://host:9092/TOPIC"),
    "mq": _Kind("posix_mq", "mq", "mq:/NAME"),
}
PREFIX = "bridge."
"""Of the names by which bridges hold a queue's messages."""
_OF_THE_PLACE = ("db", "subject")
"""Options that lead elsewhere; the others say how to get there."""
_STRANGE = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_LENGTH = 64 - len(".sent")


class Url(NamedTuple):
    """A URL, taken apart. It may hold a password, so `shown` is what people are told."""

    scheme: str
    server: str
    name: str
    options: Mapping[str, str]

    @property
    def shown(self) -> str:
        """The URL without whoever logs in."""
        if self.scheme == "mq":
            return f"mq:/{self.name}"
        return f"{self.scheme}://{self.server.rpartition('@')[2]}/{quote(self.name)}"

    def consumer(self, way: str) -> str:
        """How the bridge to it is called among the queue's consumers; *way* is "" or "in"."""
        place = [self.options.get(each, "") for each in _OF_THE_PLACE]
        known = hashlib.sha256(f"{self.shown} {place}".encode()).hexdigest()[:8]
        end = f".{known}{way and '.' + way}"
        return f"{PREFIX}{self.scheme}.{_STRANGE.sub('-', self.name)}"[: _NAME_LENGTH - len(end)] + end


def is_url(word: str) -> bool:
    """Whether that is where a bridge can lead, and no queue of ours."""
    scheme, colon, rest = word.partition(":")
    return bool(colon) and scheme in _KINDS and rest.startswith("/")


def parse(word: str) -> Url:
    """
    What the URL names.

    Raises:
        ValueError: it is none, or names no stream.
    """
    if not is_url(word):
        raise ValueError(f"{word!r} is none of {', '.join(dict.fromkeys(each.like for each in _KINDS.values()))}")
    parts = urlsplit(word)
    name = unquote(parts.path.removeprefix("/"))
    if not name or "\0" in name or (parts.scheme == "mq") == bool(parts.netloc):
        raise ValueError(f"{word!r} is not like {_KINDS[parts.scheme].like}")
    return Url(parts.scheme, parts.netloc, name, dict(parse_qsl(parts.query, keep_blank_values=True)))


def target(url: Url, queue_id: str, stop: threading.Event) -> Target:
    """
    The way to it, for the queue of that id; what waits in there ends when *stop* is set.

    Raises:
        ImportError: what speaks with such a server is not installed.
        ValueError: the URL has an option that means nothing.
    """
    made: Target = _module(url).Target(url, queue_id, stop)
    return made


def source(url: Url, queue_id: str, stop: threading.Event) -> Source:
    """
    The way from it, into the queue of that id.

    Raises:
        As `target`.
    """
    made: Source = _module(url).Source(url, queue_id, stop)
    return made


def _module(url: Url):  # type: ignore[no-untyped-def]  # noqa: ANN202  # one of four, each with a Target and a Source
    kind = _KINDS[url.scheme]
    try:
        return importlib.import_module(f"shmq.bridge.{kind.module}")
    except ModuleNotFoundError as problem:
        if (problem.name or "").startswith("shmq"):
            raise
        raise ImportError(
            f"a bridge to {kind.like} needs the package {problem.name!r}: pip install 'shmq[{kind.extra}]'"
        ) from None


def only(url: Url, *known: str) -> None:
    """
    Refuse options that mean nothing.

    Raises:
        ValueError: there is one.
    """
    strange = sorted(set(url.options) - set(known))
    if strange:
        allowed = f"; there is {', '.join(known)}" if known else ""
        raise ValueError(f"{url.shown} has no option {strange[0]!r}{allowed}")

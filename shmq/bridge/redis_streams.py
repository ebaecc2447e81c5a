"""
Redis Streams, also of Valkey.

Out: message 42 is entry 42-1, and Redis refuses an id that is not above all before; so a repeat is an error, and the
last id says where the stream is, also when entries were trimmed. A consumer group of our own, which dies with the
stream, says whose indexes these are. In: a group marks the stream, too; one that is made anew has none.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ConnectionError, RedisError, ResponseError, TimeoutError  # noqa: A004
from redis.retry import Retry

from shmq.bridge import carried, ends, urls
from shmq.errors import BadFormat, Mismatch, NotFound

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from shmq.bridge.carried import Carried
    from shmq.bridge.urls import Url

_FROM, _TO = "shmq-from-", "shmq-to-"
_OURS = frozenset({"payload", "key", "type", "time", "headers", "source"})
_SEQUENCE_BITS = 21
_NUMBERS = 1 << 63
_FOR_NOW = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN")
"""How errors begin that go by themselves, or when somebody makes room."""
_GONE = ("NOGROUP", "requires the key to exist", "no such key")
"""What errors say where the stream, or its group, was deleted since it was looked for."""


class _Client:
    """A connection, and one stream."""

    def __init__(self, url: Url) -> None:
        urls.only(url, "db")
        scheme = "redis" if url.scheme == "valkey" else url.scheme
        self.shown = url.shown
        self.stream = url.name
        self.redis: Any = redis.Redis.from_url(
            f"{scheme}://{url.server}/{url.options.get('db', '0')}",
            socket_connect_timeout=ends.CONNECT_WITHIN,
            socket_timeout=ends.ANSWER_WITHIN,
            retry=Retry(NoBackoff(), 0),  # a batch that may have arrived is not sent again before we have asked
            protocol=2,
        )

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """What the server or the way to it has against it, in our words."""
        try:
            yield
        except AuthenticationError as problem:
            raise ends.Refused(f"{self.shown} lets nobody in like this: {problem}") from None
        except (ConnectionError, TimeoutError) as problem:
            raise ends.Unreachable(str(problem)) from None
        except ResponseError as problem:
            raise self.answered(problem) from None
        except (RedisError, OSError) as problem:
            raise ends.Unreachable(str(problem)) from None

    def answered(self, problem: Exception) -> Exception:
        """What an error that the server answered means for a bridge."""
        text = str(problem)
        if any(word in text for word in _GONE):
            return ends.Unreachable(f"the stream was deleted ({text})")
        if text.startswith(_FOR_NOW) or any(f" {word}" in text for word in _FOR_NOW):
            return ends.Unreachable(text)
        return ends.Refused(f"{self.shown} refused: {text}")

    def groups(self) -> list[str] | None:
        """The consumer groups of the stream; None when there is no stream."""
        try:
            return [carried.text_or_bytes(each["name"]) for each in self.redis.xinfo_groups(self.stream)]  # type: ignore[misc]
        except ResponseError as problem:
            if "no such key" in str(problem):
                return None
            raise

    def close(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            self.redis.close()


class Target(ends.Target):
    """A stream whose entries have the indexes of one queue."""

    def __init__(self, url: Url, queue_id: str, stop: threading.Event) -> None:  # noqa: ARG002  # nothing waits here
        """See `urls.target`."""
        self._client = _Client(url)
        self._queue_id = queue_id
        self._mark = f"{_FROM}{queue_id}"

    def place(self) -> int | None:
        """See `ends.Target`."""
        client = self._client
        with client.asking():
            groups = client.groups()
            if groups is not None and self._mark not in groups:
                self._refuse_others(groups)
            if groups is None or self._mark not in groups:
                client.redis.xgroup_create(client.stream, self._mark, id="$", mkstream=True)
            last = client.redis.xinfo_stream(client.stream)["last-generated-id"]
        index, _, sequence = carried.text_or_bytes(last).partition("-")  # type: ignore[arg-type]
        return None if (index, sequence) == ("0", "0") else int(index)

    def _refuse_others(self, groups: list[str]) -> None:
        client = self._client
        others = [each.removeprefix(_FROM) for each in groups if each.startswith(_FROM)]
        if others:
            raise Mismatch(
                f"{client.shown} has messages of the queue with the id {others[0]}, not of this one, "
                f"{self._queue_id}; give each queue a stream of its own"
            )
        if client.redis.xlen(client.stream):
            raise Mismatch(
                f"{client.shown} has entries that no bridge has put there, and its ids are to be those of one "
                "queue; give the queue a stream of its own"
            )

    def send(self, batch: Sequence[ends.Outgoing]) -> None:
        """See `ends.Target`. One transaction: Redis has all of it, or, for want of memory, say, nothing."""
        client = self._client
        with client.asking():
            together = client.redis.pipeline(transaction=True)
            for index, message in batch:
                together.xadd(client.stream, _fields(message), id=f"{index}-1", nomkstream=True)
            answers = together.execute(raise_on_error=False)
        for answer in answers:
            if answer is None:
                raise ends.Unreachable("the stream was deleted")
            if isinstance(answer, Exception):
                if "equal or smaller" in str(answer):
                    raise ends.Unreachable("a bridge that was here before has sent this meanwhile")
                raise client.answered(answer)

    def close(self) -> None:
        """See `ends.Target`."""
        self._client.close()


def _fields(message: Carried) -> dict[str, Any]:
    plain, packed = carried.apart(message.headers, _fits)
    fields: dict[str, Any] = {"payload": message.payload, "source": message.source}
    if message.key is not None:
        fields["key"] = message.key
    if message.type:
        fields["type"] = message.type
    if message.time_ns is not None:
        fields["time"] = message.time_ns
    if packed is not None:
        fields["headers"] = packed
    return {**fields, **plain}


def _fits(name: str, text: str) -> bool:
    return name not in _OURS and carried.is_utf8(name, text)


class Source(ends.Source):
    """A stream, from the first entry that the queue has not."""

    def __init__(self, url: Url, queue_id: str, stop: threading.Event) -> None:  # noqa: ARG002  # nothing waits for long
        """See `urls.source`."""
        self._client = _Client(url)
        self._prefix = f"{_TO}{queue_id}-"
        self._group = ""
        self._producer = ""
        self._last = "0-0"

    def begin(self, known: Callable[[str], int | None]) -> None:
        """See `ends.Source`."""
        client = self._client
        with client.asking():
            groups = client.groups()
            if groups is None:
                raise NotFound(f"there is no stream at {client.shown}")
            self._group = next((each for each in groups if each.startswith(self._prefix)), "")
            if not self._group:
                self._group = f"{self._prefix}{secrets.token_hex(8)}"
                client.redis.xgroup_create(client.stream, self._group, id="0")
        self._producer = f"redis {client.stream} {self._group.removeprefix(self._prefix)}"
        number = known(self._producer) or 0
        self._last = f"{number >> _SEQUENCE_BITS}-{number & (1 << _SEQUENCE_BITS) - 1}"

    def read(self, timeout: float) -> ends.Batch | None:
        """See `ends.Source`."""
        client = self._client
        with client.asking():
            waited = client.redis.xread({client.stream: self._last}, count=1, block=max(int(timeout * 1000), 1))
            # What is read is read together with the mark: a stream that was made anew meanwhile has other numbers.
            together = client.redis.pipeline(transaction=True)
            together.xinfo_groups(client.stream)
            together.xread({client.stream: self._last}, count=ends.BATCH if waited else 1)
            groups, found = together.execute(raise_on_error=False)
        if isinstance(groups, Exception) or self._group.encode() not in [each["name"] for each in groups]:
            raise ends.Unreachable("the stream was deleted, or made anew")
        if isinstance(found, Exception):
            raise client.answered(found)
        entries = [(each.decode(), fields) for each, fields in found[0][1]] if found else []
        if not entries:
            return None
        self._last = entries[-1][0]
        messages = [ends.Numbered(_number(each), self._message(each, fields)) for each, fields in entries]
        return ends.Batch(self._producer, messages, receipt=self._last)

    def _message(self, entry: str, fields: dict[bytes, bytes]) -> Carried:
        where = f"entry {entry} of {self._client.shown}"
        if b"source" not in fields or b"payload" not in fields:
            time_ns = int(entry.partition("-")[0]) * 1_000_000
            rest = {str(carried.text_or_bytes(each)): carried.text_or_bytes(fields[each]) for each in fields}
            rest.pop("payload", None)
            return carried.Carried(fields.get(b"payload", b""), time_ns=_time(time_ns), headers=rest or None)
        plain = {each.decode(): carried.text_or_bytes(fields[each]) for each in fields if each.decode() not in _OURS}
        return carried.Carried(
            fields[b"payload"],
            fields.get(b"key"),
            carried.number(fields.get(b"type"), where),
            carried.number(fields[b"time"], where) if b"time" in fields else None,
            carried.together(plain, fields.get(b"headers"), where),
            fields[b"source"].decode(errors="replace"),
        )

    def confirm(self, batch: ends.Batch) -> None:
        """See `ends.Source`. For people: `XINFO GROUPS` shows how far the queue is."""
        with self._client.asking():
            self._client.redis.xgroup_setid(self._client.stream, self._group, batch.receipt)

    def close(self) -> None:
        """See `ends.Source`."""
        self._client.close()


def _number(entry: str) -> int:
    time, _, sequence = entry.partition("-")
    number = int(time) << _SEQUENCE_BITS | int(sequence)
    if int(sequence) >> _SEQUENCE_BITS or number >= _NUMBERS:
        raise BadFormat(f"the id {entry} is larger than a bridge can count: 2^42 milliseconds and 2^21 of each")
    return number


def _time(time_ns: int) -> int | None:
    """What looks like a time since 1970; an id may be anything."""
    return time_ns if time_ns < _NUMBERS else None

"""
NATS JetStream.

Out: each message says which sequence must be the last before it, so a batch arrives whole or only its beginning, and
nothing in between can be lost or come twice, whatever a bridge that was killed has left in its socket. The last message
names its queue and index. In: a consumer that begins behind what the queue has; the stream's birth is part of its name.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import secrets
from typing import TYPE_CHECKING, Any, TypeVar

import nats
import nats.errors
import nats.js.api
import nats.js.errors

from shmq.bridge import carried, ends, urls
from shmq.errors import Mismatch, NotFound, TooLarge

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from shmq.bridge.carried import Carried
    from shmq.bridge.urls import Url

T = TypeVar("T")
_FETCH_GRACE = 5.0
_ACK_WAIT = 60.0
"""Seconds after which the server sends again what we have not acknowledged, because the queue is full, say."""
_TOO_LARGE = 10054
_FINAL = frozenset({10060, 10076})
"""Error codes that stay what they are: the wrong stream for this subject, say."""
_NAME = re.compile(r"[!-9;-~]+")
"""A header's name."""
_TEXT = re.compile(r"[!-~]([ -~]*[!-~])?")
"""A value that comes back the same: printable, and no space at an end."""


class _Link:
    """A connection, and one stream. The library is asynchronous, and we are not: each call runs its loop."""

    def __init__(self, url: Url) -> None:
        urls.only(url, "subject")
        self.url = url
        self.shown = url.shown
        self.stream = url.name
        if not re.fullmatch(r"[^\s.*>/\\]+", self.stream):
            raise ValueError(f"{self.stream!r} is not the name of a stream: no spaces, no . * > / and \\")
        self._loop: asyncio.AbstractEventLoop | None = None
        self.client: Any = None
        self.js: Any = None
        self._told: Exception | None = None

    def run(self, call: Coroutine[Any, Any, T], within: float = ends.ANSWER_WITHIN) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(asyncio.wait_for(call, within))
        except nats.js.errors.NotFoundError:
            raise
        except nats.js.errors.APIError as problem:
            raise self.answered(problem.err_code, str(problem.description)) from None
        except (nats.errors.Error, TimeoutError, OSError) as problem:
            told = self._told if isinstance(problem, nats.errors.NoServersError) and self._told else problem
            text = str(told) or type(told).__name__
            if "authoriz" in text.lower():
                raise ends.Refused(f"{self.shown} lets nobody in like this: {text}") from None
            raise ends.Unreachable(text) from None

    def answered(self, code: int | None, text: str) -> Exception:
        """What an error that the server answered means for a bridge."""
        if code == _TOO_LARGE:
            return TooLarge(f"a message is larger than {self.shown} takes: {text}; all before it are there")
        if code in _FINAL:
            return ends.Refused(f"{self.shown} refused: {text}")
        return ends.Unreachable(text)

    def connect(self) -> None:
        """
        Raises:
            Unreachable, Refused: as their names say.
        """

        async def connect() -> None:
            self.client = nats.NATS()
            await self.client.connect(
                f"{self.url.scheme}://{self.url.server}",
                name="shmq bridge",
                allow_reconnect=False,
                connect_timeout=ends.CONNECT_WITHIN,
                max_reconnect_attempts=1,  # of each server that the URL names
                reconnect_time_wait=0.05,
                error_cb=self._hear,
            )

        self.run(connect())
        self.js = self.client.jetstream(timeout=ends.ANSWER_WITHIN)

    async def _hear(self, problem: Exception) -> None:
        """What the library would log; a call that fails later does not say why."""
        self._told = problem

    def is_open(self) -> bool:
        return self.client is not None and bool(self.client.is_connected)

    def close(self) -> None:
        if self._loop is None:
            return
        if self.client is not None:
            with contextlib.suppress(Exception):  # whatever is broken there, it is let go of
                self._loop.run_until_complete(asyncio.wait_for(self.client.close(), 1.0))
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                self._loop.run_until_complete(task)
        self._loop.close()
        self._loop = None


# ---------------------------------------------------------------- out
class Target(ends.Target):
    """A stream that has the messages of one queue, and no others."""

    def __init__(self, url: Url, queue_id: str, stop: threading.Event) -> None:  # noqa: ARG002  # nothing waits here
        """See `urls.target`."""
        self._link = _Link(url)
        self._queue_id = queue_id
        self._subject = url.options.get("subject", "")
        self._last = 0
        """The sequence of the last message there."""
        self._answers: dict[str, bytes] = {}
        self._inbox = ""
        self._all_answered = asyncio.Event()
        self._awaited = 0

    def place(self) -> int | None:
        """See `ends.Target`. A stream that is not there is made, with its own name as the only subject."""
        link = self._link
        link.connect()
        try:
            info = link.run(link.js.stream_info(link.stream))
        except nats.js.errors.NotFoundError:
            subject = self._subject or link.stream
            info = link.run(link.js.add_stream(name=link.stream, subjects=[subject]))
        self._subject = self._subject or self._only_subject(info.config.subjects or [])
        self._inbox = f"_INBOX.{secrets.token_hex(12)}"
        link.run(link.client.subscribe(f"{self._inbox}.*", cb=self._answered))
        self._last = info.state.last_seq
        if self._last == 0:
            return None
        if info.state.messages == 0:
            return ends.UNKNOWN
        try:
            last = link.run(link.js.get_msg(link.stream, seq=self._last))
        except nats.js.errors.NotFoundError:
            return ends.UNKNOWN
        headers = last.headers or {}
        if headers.get("Shmq-Source") != self._queue_id:
            whose = f"queue {headers['Shmq-Source']}" if "Shmq-Source" in headers else "no bridge"
            raise Mismatch(
                f"the last message of {link.shown} is of {whose}, not of this queue, {self._queue_id}; "
                "give each queue a stream of its own"
            )
        return carried.number(headers.get("Shmq-Index"), f"message {self._last} of {link.shown}")

    def _only_subject(self, subjects: list[str]) -> str:
        if len(subjects) == 1 and not re.search(r"[*>]", subjects[0]):
            return subjects[0]
        shown = self._link.shown
        raise ends.Refused(f"{shown} has the subjects {', '.join(subjects)}; say which: {shown}?subject=...")

    async def _answered(self, message: Any) -> None:
        nobody = b'{"error":{"description":"there is no such stream any more"}}'
        self._answers[message.subject.rpartition(".")[2]] = message.data or nobody
        if len(self._answers) == self._awaited:
            self._all_answered.set()

    def send(self, batch: Sequence[ends.Outgoing]) -> None:
        """See `ends.Target`."""
        link = self._link
        self._answers.clear()
        self._all_answered.clear()
        self._awaited = len(batch)
        link.run(self._publish(batch))
        last = self._last
        for at in range(len(batch)):
            answer = json.loads(self._answers[str(at)])
            if error := answer.get("error"):
                raise link.answered(error.get("err_code"), error.get("description", "it refused"))
            last = max(last, answer["seq"])
        self._last = last

    async def _publish(self, batch: Sequence[ends.Outgoing]) -> None:
        client, stream = self._link.client, self._link.stream
        for at, (index, message) in enumerate(batch):
            headers = _headers(message)
            headers["Shmq-Index"] = str(index)
            headers["Nats-Msg-Id"] = f"{self._queue_id}-{index}"
            headers["Nats-Expected-Stream"] = stream
            headers["Nats-Expected-Last-Sequence"] = str(self._last + at)
            try:
                await client.publish(self._subject, message.payload, reply=f"{self._inbox}.{at}", headers=headers)
            except nats.errors.MaxPayloadError:
                await self._have_answers(at)
                raise ends.too_large(batch[at], self._link.shown, client.max_payload) from None
        await self._have_answers(len(batch))

    async def _have_answers(self, count: int) -> None:
        """Return when the server has said of the first *count* of the batch what became of them."""
        self._awaited = count
        if len(self._answers) >= count:
            return
        await self._link.client.flush(ends.ANSWER_WITHIN)
        await self._all_answered.wait()

    def idle(self) -> None:
        """See `ends.Target`."""
        self._link.run(asyncio.sleep(0.001))  # the library answers the server's pings meanwhile
        if not self._link.is_open():
            raise ends.Unreachable("the connection was closed")

    def close(self) -> None:
        """See `ends.Target`."""
        self._link.close()


def _headers(message: Carried) -> dict[str, str]:
    headers, packed = carried.apart(message.headers, _fits)
    if message.source is not None:
        headers["Shmq-Source"] = message.source
    if message.key is not None:
        text = message.key.decode("latin-1")
        if _TEXT.fullmatch(text):
            headers["Shmq-Key"] = text
        else:
            headers["Shmq-Key-Base64"] = base64.b64encode(message.key).decode()
    if message.type:
        headers["Shmq-Type"] = str(message.type)
    if message.time_ns is not None:
        headers["Shmq-Time"] = str(message.time_ns)
    if packed is not None:
        headers["Shmq-Headers"] = base64.b64encode(packed).decode()
    return headers


def _fits(name: str, text: str) -> bool:
    theirs = name.lower().startswith(("nats-", "shmq-"))
    return not theirs and _NAME.fullmatch(name) is not None and _TEXT.fullmatch(text) is not None


# ---------------------------------------------------------------- in
class Source(ends.Source):
    """A stream, from the first message that the queue has not."""

    def __init__(self, url: Url, queue_id: str, stop: threading.Event) -> None:  # noqa: ARG002  # nothing waits for long
        """See `urls.source`."""
        self._link = _Link(url)
        self._prefix = f"shmq-{queue_id}-"
        self._name = ""
        self._producer = ""
        self._subscription: Any = None

    def begin(self, known: Callable[[str], int | None]) -> None:
        """
        See `ends.Source`.

        The consumer is made anew each time: what was on its way to a bridge that was killed would come only when the
        server has waited for it, behind messages that were later.
        """
        link = self._link
        link.connect()
        try:
            info = link.run(link.js.stream_info(link.stream))
        except nats.js.errors.NotFoundError:
            raise NotFound(f"there is no stream at {link.shown}") from None
        self._producer = f"nats {link.stream} {info.created.isoformat()}"
        number = known(self._producer) or 0
        if number > info.state.last_seq:
            raise Mismatch(
                f"{link.shown} ends at message {info.state.last_seq}, and the queue has had its message {number}: "
                "the stream has lost what it had, and what comes now would have the numbers of what is known already"
            )
        self._name = f"{self._prefix}{secrets.token_hex(4)}"
        link.run(self._subscribe(number, is_work=info.config.retention == nats.js.api.RetentionPolicy.WORK_QUEUE))

    async def _subscribe(self, number: int, *, is_work: bool) -> None:
        js, stream = self._link.js, self._link.stream
        policy = nats.js.api.DeliverPolicy
        begin: dict[str, Any] = {"deliver_policy": policy.ALL}
        if number and not is_work:  # of a work queue only what nobody has acknowledged is there
            begin = {"deliver_policy": policy.BY_START_SEQUENCE, "opt_start_seq": number + 1}
        before = [each.name for each in await js.consumers_info(stream) if each.name.startswith(self._prefix)]
        if is_work:  # takes no second consumer; others may forget what nobody is there for
            await self._forget(before)
        config = nats.js.api.ConsumerConfig(
            durable_name=self._name,
            ack_policy=nats.js.api.AckPolicy.EXPLICIT,
            ack_wait=_ACK_WAIT,
            max_ack_pending=4 * ends.BATCH,
            filter_subject=self._link.url.options.get("subject"),
            **begin,
        )
        await js.add_consumer(stream, config)
        self._subscription = await js.pull_subscribe_bind(consumer=self._name, stream=stream)
        if not is_work:
            await self._forget(before)

    async def _forget(self, names: list[str]) -> None:
        for each in names:
            with contextlib.suppress(nats.js.errors.NotFoundError):
                await self._link.js.delete_consumer(self._link.stream, each)

    def read(self, timeout: float) -> ends.Batch | None:
        """See `ends.Source`."""
        link = self._link
        if not link.is_open():
            raise ends.Unreachable("the connection was closed")
        found = link.run(self._fetch(timeout), timeout + _FETCH_GRACE)
        if not found and not self._more():
            return None
        messages = [ends.Numbered(each.metadata.sequence.stream, self._message(each)) for each in found]
        return ends.Batch(self._producer, messages, receipt=found)

    async def _fetch(self, timeout: float) -> list[Any]:  # noqa: ASYNC109  # as the library's own
        try:
            return list(await self._subscription.fetch(ends.BATCH, timeout=timeout))
        except nats.errors.TimeoutError:
            return []

    def _more(self) -> bool:
        """Whether there is more, which is on its way. A consumer goes with its stream, and who waits is not told."""
        try:
            info = self._link.run(self._link.js.consumer_info(self._link.stream, self._name))
        except nats.js.errors.NotFoundError:
            raise ends.Unreachable("the stream was deleted, or made anew") from None
        return bool(info.num_pending or info.num_ack_pending)

    def _message(self, message: Any) -> Carried:
        where = f"message {message.metadata.sequence.stream} of {self._link.shown}"
        return _carried(message.data, message.headers or {}, message.metadata.timestamp, where)

    def confirm(self, batch: ends.Batch) -> None:
        """See `ends.Source`."""

        async def acknowledge() -> None:
            for each in batch.receipt:
                await each.ack()
            await self._link.client.flush(ends.ANSWER_WITHIN)

        self._link.run(acknowledge())

    def close(self) -> None:
        """See `ends.Source`."""
        self._link.close()


def _carried(payload: bytes, headers: Mapping[str, str], time: Any, where: str) -> Carried:
    plain = {each: text for each, text in headers.items() if not each.lower().startswith(("nats-", "shmq-"))}
    key = headers["Shmq-Key"].encode() if "Shmq-Key" in headers else None
    packed = None
    try:
        if "Shmq-Key-Base64" in headers:
            key = base64.b64decode(headers["Shmq-Key-Base64"], validate=True)
        if "Shmq-Headers" in headers:
            packed = base64.b64decode(headers["Shmq-Headers"], validate=True)
    except ValueError as problem:
        raise ends.Refused(f"{where} has a header that is not base64: {problem}; it was not put") from None
    if "Shmq-Time" in headers:
        time_ns = carried.number(headers["Shmq-Time"], where)
    else:
        time_ns = int(time.timestamp() * 1e6) * 1000
    return carried.Carried(
        payload,
        key,
        carried.number(headers.get("Shmq-Type"), where),
        time_ns,
        carried.together(plain, packed, where),
        headers.get("Shmq-Source"),
    )

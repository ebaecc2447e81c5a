"""
In: what a source has goes into the queue, each message once, however late and however often the bridge is killed.

A batch is put under the source's name and the number of its last message. What the queue has already, it says itself:
of each source it remembers the last batch, so what comes again is known by its number, and is only confirmed.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import shmq
from shmq.bridge import ends, urls
from shmq.bridge.patience import Patience
from shmq.errors import Busy, Corrupt, Full, Mismatch, NotFound, SyncPending, TooMany, Untrusted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmq.bridge.ends import Batch, Numbered, Source

_CODECS = ("text", "json", "msgpack")


def receive(url: str, queue: shmq.Queue[Any], *, once: bool = False, stop: threading.Event | None = None) -> int:
    """
    Carry the messages of *url* into *queue*, until *stop* is set; return how many.

    Each message is put once: `dedup` knows the stream, which is another one when it is made anew, and the number. Then
    it is confirmed. While the server is away, or the queue full, it is tried again, which is said once on stderr.

    Args:
        url: as for `send`.
        once: end when all that is there is in the queue.

    Raises:
        ImportError, ValueError: as for `send`.
        NotFound: there is no such stream.
        Busy: another bridge carries this into the queue.
        Mismatch: it comes from this queue; or the queue's codec is no one of shmq's own.
        Untrusted: the queue holds pickles.
        Corrupt: the queue's codec cannot read a payload; all before it are in the queue.
        TooLarge, DiskFull, ShutDown, Refused: as their names say.
    """
    where = urls.parse(url)
    stop = stop or threading.Event()
    decode = _decoder(queue)
    urls.source(where, queue.id, stop).close()  # what is wrong with it is said before anything is held
    with queue.consumer(where.consumer("in"), hold="nothing", ephemeral=True, start="latest"):  # there is one bridge
        return _Bridge(queue, where, decode, once=once, stop=stop).run()


def _decoder(queue: shmq.Queue[Any]) -> Callable[[bytes], Any] | None:
    name = queue.options.codec
    if name == "pickle":
        raise Untrusted(f"{queue.place} holds pickles, and what comes over a network is not made into one")
    if name != "bytes" and name not in _CODECS:
        raise Mismatch(f"{queue.place} has codec {name!r}, which is not shmq's own; a bridge puts bytes, text and JSON")
    return shmq.codec.codec(name).decode


class _Bridge:
    def __init__(
        self,
        queue: shmq.Queue[Any],
        url: urls.Url,
        decode: Callable[[bytes], Any] | None,
        *,
        once: bool,
        stop: threading.Event,
    ) -> None:
        self._queue = queue
        self._url = url
        self._decode = decode
        self._once = once
        self._stop = stop
        self._put = 0
        self._known: dict[str, int] = {}
        """Of each producer the number of the last message that the queue has."""
        self._began = False

    def run(self) -> int:
        patience = Patience(self._url.shown, self._stop)
        while not self._stop.is_set():
            with contextlib.closing(urls.source(self._url, self._queue.id, self._stop)) as source:
                try:
                    self._begin(source)
                    self._carry(source, patience)
                    break
                except ends.Unreachable as problem:
                    patience.wait(problem)
                except ends.Stopped:
                    break
        return self._put

    def _begin(self, source: Source) -> None:
        try:
            source.begin(self._last_of)
        except NotFound as problem:
            if not self._began or self._once:
                raise
            raise ends.Unreachable(str(problem)) from None  # it was there, and may be made anew
        self._began = True

    def _last_of(self, producer: str) -> int | None:
        batch = self._queue.adopted(producer)
        if batch is None:
            self._known.pop(producer, None)
            return None
        self._known[producer] = batch[0]
        return batch[0]

    def _carry(self, source: Source, patience: Patience) -> None:
        while not self._stop.is_set():
            batch = source.read(ends.LOOK)
            if batch is not None:
                known = self._known.get(batch.producer, -1)
                fresh = [each for each in batch.messages if each.number is None or each.number > known]
                try:
                    self._take_over(batch.producer, fresh)
                except ends.Stopped:
                    source.give_back(batch)
                    raise
                self._confirm(source, batch)
            elif self._once:
                return
            patience.works()

    def _confirm(self, source: Source, batch: Batch) -> None:
        """What is confirmed the far end may forget, so it is on the disk; without numbers it was forgotten before."""
        numbered = bool(batch.messages) and batch.messages[0].number is not None
        if numbered and self._queue.durable_index < self._queue.next_index:
            self._queue.sync()
        source.confirm(batch)

    def _take_over(self, producer: str, messages: Sequence[Numbered]) -> None:
        """Put them, in as few batches as the queue has room for."""
        if not messages:
            return
        if any(each.message.source == self._queue.id for each in messages):
            raise Mismatch(f"{self._url.shown} is fed from {self._queue.place} itself; nothing was put")
        parts = [messages]
        while parts:
            part = parts.pop()
            try:
                self._put_batch(producer, part)
            except TooMany:
                if len(part) == 1:
                    raise
                half = len(part) // 2
                parts += [part[half:], part[:half]]
                continue
            self._put += len(part)
            number = part[-1].number
            if number is not None:
                self._known[producer] = number

    def _put_batch(self, producer: str, part: Sequence[Numbered]) -> None:
        number = part[-1].number
        given = {
            "payloads": [self._payload(each) for each in part],
            "keys": [each.message.key for each in part],
            "types": [each.message.type for each in part],
            "headers": [each.message.headers for each in part],
            "dedup": None if number is None else (producer, number),
            "timeout": ends.LOOK,
        }
        if all(each.message.time_ns is not None for each in part):
            given["times_ns"] = [each.message.time_ns for each in part]
        waits = Patience(self._queue.place, self._stop)
        while True:
            if self._stop.is_set():
                raise ends.Stopped
            try:
                self._queue.put_many(**given)  # type: ignore[arg-type]
            except SyncPending:
                self._queue.sync()
            except (Full, Busy) as problem:
                if isinstance(problem, shmq.DiskFull):
                    raise
                waits.wait(problem)
                continue
            waits.works()
            return

    def _payload(self, each: Numbered) -> Any:
        if self._decode is None:
            return each.message.payload
        try:
            return self._decode(each.message.payload)
        except ValueError as problem:
            raise Corrupt(
                f"message {each.number} of {self._url.shown} is nothing for codec {self._queue.options.codec!r} of "
                f"{self._queue.place}: {problem}; all before it are in the queue"
            ) from None

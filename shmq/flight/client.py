"""
A client: one connection to a service, and patience while the service is away.

What is asked for is asked again until somebody answers, or the patience is over. Nothing is done twice by that.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as fl

from shmq.flight import refusals, words
from shmq.flight.actions import boot
from shmq.flight.remote import COLUMNS, RemoteQueue
from shmq.flight.tokens import Bearer, is_loopback
from shmq.net.tokens import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

_ANSWER_SECONDS = 60.0
"""For one answer; a stopped service is one that is away."""
_PAUSE, _PAUSE_MOST = 0.02, 1.0
_AWAY = (fl.FlightUnavailableError, fl.FlightTimedOutError, fl.FlightCancelledError)
_CHANNEL = [
    ("grpc.keepalive_time_ms", 330_000),  # a service takes pings more often than every five minutes for an attack
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 50),  # by default a second, and up to two minutes
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class Client:
    """
    A connection. Made by `connect`; a context manager; safe to use from several threads, and not across a fork.

    Attributes:
        location: where the service is.
    """

    def __init__(self, location: str, token: str | None, roots: bytes | None, patience: float) -> None:
        """See `connect`."""
        self.location = location.rstrip("/")
        self._patience = patience
        self._flight = fl.connect(
            self.location,
            tls_root_certs=roots,
            middleware=None if token is None else [Bearer(token)],
            generic_options=_CHANNEL,
        )
        self._options = fl.FlightCallOptions(timeout=_ANSWER_SECONDS)
        self._boot = boot()

    # ---- for users
    def queues(self, below: str = "") -> list[str]:
        """
        The names of the queues that there are, or of those at and below a name.

        Raises:
            NotFound: there is no such directory.
        """
        return self.act("queues", words.Names(queue=below), list[str])  # type: ignore[no-any-return]

    def queue(self, name: str) -> RemoteQueue:
        """
        The queue of that name, as it is now.

        Raises:
            NotFound: there is none that is for you.
        """
        return RemoteQueue(self, name, self.act("ends", words.EndsOf(queue=name, boot=self._boot), words.Ends))

    def ends(self, name: str, *, durable: bool = False) -> words.Ends:
        """Where that queue begins and ends; see `RemoteQueue.ends`."""
        return self.act("ends", words.EndsOf(queue=name, durable=durable), words.Ends)  # type: ignore[no-any-return]

    def read(
        self, name: str, start: int | None = None, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """
        The messages from *start* to before *stop*, by default all there are. From this machine's disk, where it is one.

        Args:
            name: of the queue.
            start, stop: indexes.
            columns: some of index, time, key, type, payload and headers; by default all but headers.

        Raises:
            NotFound: there is no such queue.
            Gone: messages from *start* on were retired; also while reading.
            Corrupt: while reading: the next message is damaged.
            Unreachable: the service was away for longer than the patience.
        """
        queue = self.queue(name)
        first = queue.first_index if start is None else start
        local = queue.here()
        if local is not None and first >= local.first_index:
            batches = local.read_arrow(first, local.committed_index if stop is None else stop, columns)
            return pa.RecordBatchReader.from_batches(batches.schema, _with(local, batches))
        if local is not None:
            local.close()
        remote = queue.read_arrow(first, stop, columns)
        return pa.RecordBatchReader.from_batches(remote.schema, iter(remote))

    def write(self, name: str, table: Any, *, dedup: tuple[str, int] | None = None) -> range:
        """
        Append the rows of a table, all of them or nothing, and return their indexes; they are on the disk then.

        Args:
            name: of the queue, which has codec "bytes".
            table: a pyarrow.Table, RecordBatch, or an iterable of batches: column payload, and perhaps key, type,
                time and headers, as `Queue.put_arrow` takes them.
            dedup: (producer, sequence) as `Queue.adopt`: a batch that was written before is not written again.

        Raises:
            ValueError: a column is of another kind.
            NotFound, Mismatch, Full, ShutDown, DiskFull, TooLarge, Unreachable: as their names say.
        """
        queue = self.queue(name)
        staged = queue.stage().for_owner(dedup[0] if dedup else f"flight-{os.getpid()}-{random.getrandbits(64):x}")
        for each in [table] if hasattr(table, "schema") else table:
            staged.put_arrow(each)
        return queue.adopt(staged.hand_over(), dedup=dedup)

    # ---- for our own
    def act(self, verb: str, ask: words.About, kind: Any) -> Any:
        """Ask for an action, and return its answer."""
        action = fl.Action(verb, words.encode(ask))

        def once() -> bytes:
            return b"".join(each.body.to_pybytes() for each in self._flight.do_action(action, self._options))

        return words.decode(kind, self._patiently(once))

    def stage(self, ask: words.Put, batches: list[pa.RecordBatch], rows: int) -> words.Token:
        """Send batches to be staged, and return their token."""
        descriptor = fl.FlightDescriptor.for_command(words.encode(ask))

        def once() -> bytes:
            writer, answers = self._flight.do_put(descriptor, batches[0].schema, self._options)
            try:
                with contextlib.suppress(*_AWAY, fl.FlightServerError):  # what was wrong, the answer says
                    for batch in batches:
                        writer.write_batch(batch)
                    writer.write_metadata(words.encode(words.Whole(rows)))
                    writer.done_writing()
                answer = answers.read()
                if answer is None:
                    writer.close()  # which raises what was wrong
                    raise fl.FlightUnavailableError("it gave no answer")
                return bytes(answer.to_pybytes())
            finally:
                with contextlib.suppress(pa.ArrowException, OSError):
                    writer.close()

        return words.decode(words.Token, self._patiently(once))  # type: ignore[no-any-return]

    def batches(self, ask: words.Read) -> Generator[Any, None, None]:
        """
        The schema, and then the batches of a range, with their indexes in front if those were not asked for.

        It is asked for again behind the last message that came, as often as needed.
        """
        shown = ask.columns or list(COLUMNS)
        ask = _changed(ask, columns=shown if "index" in shown else ["index", *shown])
        stop = ask.stop if ask.stop is not None else self.ends(ask.queue).committed
        ask = _changed(ask, stop=stop)
        reader = self._reader(ask)
        yield pa.schema([reader.schema.field(each) for each in shown])
        while True:
            try:
                for chunk in reader:
                    if chunk.data.num_rows:
                        ask = _changed(ask, start=chunk.data["index"][-1].as_py() + 1)
                        yield chunk.data
            except _AWAY:
                reader = self._reader(ask)
            except fl.FlightError as problem:
                raise refusals.raised(problem, self.location) from None
            else:
                return

    def _reader(self, ask: words.Read) -> Any:
        ticket = fl.Ticket(words.encode(ask))
        return self._patiently(lambda: self._flight.do_get(ticket))

    def _patiently(self, once: Callable[[], Any]) -> Any:
        """
        Have it done, however often it must be tried.

        Raises:
            Unreachable: the patience is over.
        """
        until = time.monotonic() + self._patience
        pause = _PAUSE
        while True:
            try:
                return once()
            except _AWAY as problem:
                if time.monotonic() > until:
                    raise refusals.Unreachable(
                        f"{self.location} did not answer for {self._patience:g} s: {str(problem).splitlines()[0]}. "
                        "What was asked for may have been done; it can be asked again"
                    ) from None
            except fl.FlightError as problem:
                raise refusals.raised(problem, self.location) from None
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # so that many do not ask at once
            pause = min(2 * pause, _PAUSE_MOST)

    def close(self) -> None:
        """Close the connection. Closing twice is fine."""
        self._flight.close()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _with(queue: Any, batches: Any) -> Iterator[pa.RecordBatch]:
    """Batches of a queue that is open for them alone."""
    with queue, batches:
        yield from batches


def _changed(ask: words.Read, **changed: Any) -> words.Read:
    return words.Read(**{**{name: getattr(ask, name) for name in ask.__struct_fields__}, **changed})


def connect(location: str, *, token: str | None = None, roots: str | None = None, patience: float = 30.0) -> Client:
    """
    A client of the service at a location, as `shmq serve --flight` shows it. Nothing is sent yet.

    Args:
        location: grpc://HOST:PORT, grpc+tls://HOST:PORT or grpc+unix:///PATH.
        token: to be shown with each call; over TLS alone, or to this machine.
        roots: a file in PEM with the certificates to trust, where the system's do not do.
        patience: seconds for which a service that does not answer is asked again.

    Raises:
        ValueError: it is no location; or the token would cross the net for all to read, or is none that can be shown.
        OSError: *roots* cannot be read.
    """
    parts = urlsplit(location)
    if parts.scheme not in {"grpc", "grpc+tcp", "grpc+tls", "grpc+unix"}:
        raise ValueError(f"{location} is none of grpc://HOST:PORT, grpc+tls://HOST:PORT and grpc+unix:///PATH")
    checked(token)
    is_private = parts.scheme in {"grpc+tls", "grpc+unix"} or is_loopback(parts.hostname or "")
    if token is not None and not is_private:
        raise ValueError(
            f"a token is not shown to {location}, where all on the way could read it: grpc+tls:// is for that"
        )
    pem = None
    if roots is not None:
        with open(roots, "rb") as file:
            pem = file.read()
    return Client(location, token, pem, patience)

"""
The service: the queues below one root, by Arrow Flight. It keeps nothing of its clients between two calls.

    do_get(Read)                record batches of a range, one in memory at a time
    do_put(Put)                 batches are staged, and the answer is their token
    actions                     queues, ends, extents, at; hold, follow; adopt, adopted, sweep

Each call opens its queue and closes it again, so that nobody who wants to delete or move one waits for the service.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as fl

import shmq
from shmq.flight import names, refusals, tokens, words
from shmq.flight.actions import VERBS
from shmq.net.rights import ABOUT, FLIGHT, READ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_STREAMS = 16
"""Reads and puts at once; the next one waits. Each holds one batch."""
_WAIT_SECONDS = 30.0
_BATCH_BYTES = 64 << 20
"""Of one batch that is put, at most; a batch that is read has no more than 16 MiB, or one message."""
_READ_BYTES = 16 << 20
_READ_ROWS = 1 << 20
_NOT_SERVED = {
    fl.FlightMethod.LIST_FLIGHTS: "list flights",
    fl.FlightMethod.GET_FLIGHT_INFO: "say where a flight is",
    fl.FlightMethod.GET_SCHEMA: "say the schema of a flight",
    fl.FlightMethod.DO_EXCHANGE: "exchange batches",
}
_log = logging.getLogger("shmq.flight")


class _Refusing(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """
    Refuses what Flight has and this service has not.

    Before pyarrow looks for such a verb: with an error of that, it tells the client which line of which file it was in.
    """

    def start_call(self, info: Any, headers: Any) -> None:  # noqa: ARG002  # Flight's
        """Look at one call."""
        tried = _NOT_SERVED.get(info.method)
        if tried is not None:
            text = (
                f"cannot {tried}: this service has do_get, do_put and actions; 'queues' is one that says what there is"
            )
            problem = words.Problem(kind="ValueError", text=text)
            raise fl.FlightServerError(text, extra_info=words.encode(problem))


class Service(fl.FlightServerBase):  # type: ignore[misc]
    """
    One root, served from the moment this is made. Made by `serve`; a context manager.

    Attributes:
        root: the directory.
        location: where clients find it, with the port that was chosen.
    """

    def __init__(
        self, root: str, location: str, *, tls: tuple[bytes, bytes] | None, guard: tokens.Guard | None
    ) -> None:
        """See `serve`."""
        self.root = root
        self._free = threading.BoundedSemaphore(_STREAMS)
        self._is_guarded = guard is not None
        super().__init__(
            location,
            tls_certificates=None if tls is None else [tls],
            middleware={"verbs": _Refusing()} if guard is None else {"caller": guard, "verbs": _Refusing()},
        )
        port = urlsplit(location).port
        self.location = location if port is None else location.removesuffix(str(port)) + str(self.port)

    # ---- what Flight calls
    def list_actions(self, context: Any) -> list[tuple[str, str]]:  # noqa: ARG002  # Flight's
        """What there is, for any Flight client."""
        return [("queues", "which queues there are"), *((name, verb.about) for name, verb in VERBS.items())]

    def do_action(self, context: Any, action: Any) -> Iterable[bytes]:
        """One request, one answer, both JSON."""
        name, asked, tried = "", action.type, "answer"
        place: list[str] = []
        try:
            raw = action.body.to_pybytes()
            if asked == "queues":
                tried = "list"
                ask = words.decode(words.Names, raw)
                rights = self._rights(context)
                found = [each for each in names.below(self.root, ask.queue) if rights.may(READ, each)]
                if ask.queue and self._is_guarded and not found:  # a directory that is there would be told by that
                    raise names.not_found(ask.queue)
                return [words.encode(found)]
            if asked not in VERBS:
                raise ValueError(f"there is no action {asked!r}; there are queues, {', '.join(VERBS)}")
            verb = VERBS[asked]
            tried = verb.tried
            ask = words.decode(verb.request, raw)
            name = ask.queue
            with self._opened(context, ask, FLIGHT[asked], place) as queue:
                return [words.encode(verb.answer(queue, ask))]
        except Exception as problem:  # noqa: BLE001  # whatever it is, the client is told, and nothing of this machine
            raise refusals.told(problem, tried, name, *place[:1] or (None,)) from None

    def do_get(self, context: Any, ticket: Any) -> Any:
        """A range of one queue, as record batches."""
        name = ""
        place: list[str] = []
        try:
            ask = words.decode(words.Read, ticket.ticket)
            name = ask.queue
            _check_read(ask)
            with contextlib.ExitStack() as stack:
                self._take_turn(stack)
                queue = stack.enter_context(self._opened(context, ask, FLIGHT["do_get"], place))
                batches = stack.enter_context(_reading(queue, ask))
                given = tuple(batches.schema.names)[0 if ask.columns is None or "index" in ask.columns else 1 :]
                schema = pa.schema([batches.schema.field(each) for each in given])
                stack.enter_context(_telling("read", name, place[0]))
                return fl.GeneratorStream(schema, _stream(queue, ask, batches, given, stack.pop_all()))
        except Exception as problem:  # noqa: BLE001
            raise refusals.told(problem, "read", name, *place[:1] or (None,)) from None

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Batches, staged."""
        name = ""
        place: list[str] = []
        try:
            ask = words.decode(words.Put, descriptor.command or b"")
            name = ask.queue
            with contextlib.ExitStack() as stack:
                self._take_turn(stack)
                queue = stack.enter_context(self._opened(context, ask, FLIGHT["do_put"], place))
                writer.write(words.encode(_staged(queue, reader, ask.owner)))
        except Exception as problem:  # noqa: BLE001
            raise refusals.told(problem, "stage for", name, *place[:1] or (None,)) from None

    # ---- the queue that is meant
    def _rights(self, context: Any) -> tokens.Rights:
        return context.get_middleware("caller").rights if self._is_guarded else tokens.EVERYTHING

    def _take_turn(self, stack: contextlib.ExitStack) -> None:
        """
        Be one of those who stream.

        Raises:
            Busy: there are too many for long.
        """
        if not self._free.acquire(timeout=_WAIT_SECONDS):
            raise shmq.Busy(f"{_STREAMS} reads and puts are going on; nothing was done, ask again")
        stack.callback(self._free.release)

    @contextlib.contextmanager
    def _opened(self, context: Any, ask: words.About, right: str | None, place: list[str]) -> Iterator[shmq.Queue[Any]]:
        """
        The queue of a request; its directory is added to *place*.

        Raises:
            NotFound: there is none, or it is not for whoever asks.
            Mismatch: another one is meant.
        """
        rights = self._rights(context)
        if not any(rights.may(each, ask.queue) for each in ABOUT):
            raise names.not_found(ask.queue)
        if right is not None and not rights.may(right, ask.queue):
            raise names.no_right(right, ask.queue)
        path = names.path_of(self.root, ask.queue)
        place.append(path)
        # trusted: payloads are handed on as bytes, and nothing here unpickles them.
        is_writable = os.access(path, os.W_OK)
        with shmq.open(path, create=False, read_only=not is_writable, trusted=True) as queue:
            if ask.id and queue.id != ask.id:
                raise shmq.Mismatch(
                    f"the queue of that name is {queue.id}, and {ask.id} is meant: it was deleted and made again; "
                    "nothing was done"
                )
            yield queue

    def close(self) -> None:
        """Serve no more: what is going on is ended first. Closing twice is fine."""
        self.shutdown()

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


# ---------------------------------------------------------------- reading
def _check_read(ask: words.Read) -> None:
    words.check_index("start", ask.start)
    words.check_index("stop", ask.stop)
    if not 1 <= ask.max_rows <= _READ_ROWS or not 1 <= ask.max_bytes <= _READ_BYTES:
        raise ValueError(f"max_rows is from 1 to {_READ_ROWS:,}, and max_bytes to {_READ_BYTES:,}")


def _reading(queue: shmq.Queue[Any], ask: words.Read) -> Any:
    """The batches; their index is among them in any case, or nobody would see what is missing."""
    columns = ask.columns if ask.columns is None or "index" in ask.columns else ["index", *ask.columns]
    stop = queue.committed_index if ask.stop is None else ask.stop
    return queue.read_arrow(ask.start, stop, columns, ask.max_bytes, max_rows=ask.max_rows)


def _stream(
    queue: shmq.Queue[Any], ask: words.Read, batches: Any, given: tuple[str, ...], kept: contextlib.ExitStack
) -> Iterator[Any]:
    """What is sent, one after the other; *kept* is closed with the last one, or when nobody wants more."""
    with kept:
        at = ask.start
        for batch in batches:
            _check_nothing_went(queue, ask, at, batch["index"][0].as_py())
            at = batch["index"][-1].as_py() + 1
            yield batch if len(given) == batch.num_columns else batch.select(list(given))
        _check_nothing_went(queue, ask, at, at if ask.stop is None else ask.stop)


def _check_nothing_went(queue: shmq.Queue[Any], ask: words.Read, at: int, found: int) -> None:
    """
    A gap may be padding; or messages that were retired, which must not go unsaid.

    Raises:
        Gone: they were.
    """
    first = queue.first_index if found > at and not ask.lossy else 0
    if at < first:
        raise shmq.Gone(f"messages {at} to {min(first, found) - 1} were retired", first)


@contextlib.contextmanager
def _telling(tried: str, name: str, path: str) -> Iterator[None]:
    """What goes wrong later is told as what goes wrong at once."""
    try:
        yield
    except GeneratorExit:
        raise
    except Exception as problem:  # noqa: BLE001
        raise refusals.told(problem, tried, name, path) from None


# ---------------------------------------------------------------- putting
def _staged(queue: shmq.Queue[Any], reader: Any, owner: str) -> words.Token:
    """
    All that a client sends, handed over.

    Raises:
        ValueError: it did not say that this is all, so that something may be missing; nothing was staged.
    """
    _check_codec(queue)
    whole: words.Whole | None = None
    rows = 0
    with queue.stage() as staged:
        for chunk in _chunks(reader):
            if whole is not None:
                raise ValueError("something came behind the word that it was all; nothing was staged")
            if chunk.app_metadata is not None:
                whole = words.decode(words.Whole, chunk.app_metadata.to_pybytes())
            if chunk.data is not None and chunk.data.num_rows:
                if chunk.data.nbytes > _BATCH_BYTES:
                    raise shmq.TooLarge(f"a batch of {chunk.data.nbytes:,} bytes, and {_BATCH_BYTES:,} are the most")
                staged.put_arrow(chunk.data)
                rows += chunk.data.num_rows
        if whole is None or whole.rows != rows:
            raise ValueError(f"{rows} rows came, and no word that this is all; nothing was staged")
        indexes = len(staged)
        return words.Token(staged.hand_over(owner=owner or None), indexes)


def _chunks(reader: Any) -> Iterator[Any]:
    while True:
        try:
            yield reader.read_chunk()
        except StopIteration:
            return


def _check_codec(queue: shmq.Queue[Any]) -> None:
    """
    Payloads come as bytes; a queue with a codec would encode them once more.

    Raises:
        ValueError: it has one.
    """
    if queue.options.codec != "bytes":
        raise ValueError(f"the queue has codec {queue.options.codec!r}, and batches hold bytes; nothing was staged")


# ---------------------------------------------------------------- the way to it
def serve(
    root: str | os.PathLike[str],
    location: str = "grpc://127.0.0.1:0",
    *,
    certificate: str | None = None,
    key: str | None = None,
    token_file: str | None = None,
) -> Service:
    """
    Serve the queues below a directory by Arrow Flight, from now on until it is closed.

    Args:
        root: the directory. Neither it nor one between it and a queue may be one that others can write to.
        location: grpc://127.0.0.1:PORT, for every user of this machine (0 for any port, which `location` then has);
            grpc+unix:///PATH, for this user alone; grpc+tls://HOST:PORT for others.
        certificate, key: files in PEM, for TLS.
        token_file: who may do what; see `shmq.net.tokens`. Without it, whoever can connect may do everything.

    Raises:
        NotFound: there is no such directory.
        ValueError: it could be reached from other machines without TLS and tokens; or it is no location.
        Unsafe: others can change the tokens.
        BadFormat: the tokens are none.
        OSError: a file cannot be read, or the address is taken.
    """
    top = os.path.realpath(root)
    if not os.path.isdir(top):
        raise shmq.NotFound(f"cannot serve {top}: there is no such directory")
    tls = _tls(location, certificate, key)
    _check_location(location, is_guarded=token_file is not None)
    guard = None if token_file is None else tokens.Guard(token_file)
    _refuse_taken(top, location)
    make = functools.partial(Service, top, location, tls=tls, guard=guard)
    try:
        return _for_us_alone(make) if location.startswith("grpc+unix:") else make()
    except (pa.ArrowException, OSError) as problem:
        raise OSError(f"cannot serve {top} at {location}: {str(problem).partition(chr(10))[0]}") from None


def _refuse_taken(top: str, location: str) -> None:
    """
    Look for whoever listens there already: gRPC says so in lines of its own, or shares the port with another gRPC.

    Raises:
        OSError: somebody does, or the system refuses the address.
    """
    parts = urlsplit(location)
    if location.startswith("grpc+unix:") or not parts.hostname or not parts.port:
        return
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(place)
    except OSError as problem:
        taken = problem.errno == errno.EADDRINUSE
        why = "somebody listens there already" if taken else problem.strerror
        raise OSError(problem.errno, f"cannot serve {top} at {location}: {why}") from None


def _tls(location: str, certificate: str | None, key: str | None) -> tuple[bytes, bytes] | None:
    is_tls = location.startswith("grpc+tls://")
    if is_tls != (certificate is not None) or is_tls != (key is not None):
        raise ValueError(f"{location}: TLS (grpc+tls://) needs a certificate and its key, and nothing else does")
    if certificate is None or key is None:
        return None
    with open(certificate, "rb") as first, open(key, "rb") as second:
        return first.read(), second.read()


def _check_location(location: str, *, is_guarded: bool) -> None:
    """
    Whoever can connect must be somebody of this machine, or have a token and be sure whom it gives that to.

    Raises:
        ValueError: it is not so.
    """
    parts = urlsplit(location)
    if parts.scheme == "grpc+unix" and parts.path.startswith("/"):
        return
    if parts.scheme not in {"grpc", "grpc+tcp", "grpc+tls"} or not parts.hostname or parts.port is None:
        raise ValueError(f"{location} is none of grpc://HOST:PORT, grpc+tls://HOST:PORT and grpc+unix:///PATH")
    if tokens.is_loopback(parts.hostname):
        return
    if parts.scheme != "grpc+tls" or not is_guarded:
        raise ValueError(
            f"{location} can be reached from other machines: that takes grpc+tls://, a certificate and tokens"
        )


def _for_us_alone(make: Callable[[], Service]) -> Service:
    """The socket of a path is its owner's."""
    before = os.umask(0o177)
    try:
        return make()
    finally:
        os.umask(before)

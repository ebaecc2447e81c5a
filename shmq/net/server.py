"""A server of one root: where it listens, whom it lets in, and how it ends. `serve` runs one until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import importlib
import importlib.util
import logging
import os
import signal
import socket
import ssl
import stat
import struct
import threading
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.net import addresses
from shmq.net.connection import Connection
from shmq.net.service import Service
from shmq.net.tokens import Everything, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shmq.net.addresses import Tcp, Unix
    from shmq.net.limits import Limits
    from shmq.net.peer import Rights

uvloop: Any = importlib.import_module("uvloop") if importlib.util.find_spec("uvloop") else None

_log = logging.getLogger("shmq.net")
PRIVATE = ".serve"
"""The directory of a root that is the server's own. No queue's name begins with a dot."""
_CREDENTIALS = struct.Struct("3i")
_TICK = 0.5
_SAY_AGAIN = 10.0
"""Seconds between two lines of the log about the same want."""
_FULL = "too many are connected"
_GRACE = 5.0
"""Seconds for what is under way when the server ends."""


class Server:
    """
    One server. Its methods are called in its loop.

    Attributes:
        service: what it serves.
        connections: those that are open.
    """

    def __init__(
        self,
        service: Service,
        listen: Sequence[Tcp | Unix],
        *,
        tokens: Tokens | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """It listens from `start` on."""
        self.service = service
        self.connections: set[Connection] = set()
        self._listen = listen
        self._tokens = tokens
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._files: list[tuple[str, int]] = []
        self._ticking: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> list[str]:
        """Listen, and return where; a port 0 is the one that was found."""
        loop = asyncio.get_running_loop()
        told: list[str] = []
        everywhere = self._tls is not None and (self._tokens is not None or self._tls.verify_mode is ssl.CERT_REQUIRED)
        try:
            for address in self._listen:
                is_file = isinstance(address, addresses.Unix)
                found = addresses.bound(address, everywhere=everywhere)
                if isinstance(address, addresses.Unix):
                    self._files.append((address.path, os.lstat(address.path).st_ino))
                told.append(addresses.shown(address, found[0]))
                for each in found:
                    secured: dict[str, Any] = (
                        {}
                        if is_file or self._tls is None
                        else {"ssl": self._tls, "ssl_handshake_timeout": self.service.limits.hello}
                    )
                    make = loop.create_unix_server if is_file else loop.create_server
                    self._servers.append(await make(lambda: Connection(self), sock=each, **secured))
        except BaseException:
            await self.stop()
            raise
        self._ticking = asyncio.create_task(self._tick())
        _log.info("serving at %s", " ".join(told))
        return told

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now = asyncio.get_running_loop().time()
            for each in list(self.connections):
                each.tick(now)
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self.service.look())

    async def stop(self) -> None:
        """Listen no more, have what is under way answered, and close everything."""
        for server in self._servers:
            server.close()
        self.service.end()
        await asyncio.gather(*(each.finish(_GRACE) for each in list(self.connections)))
        if self._ticking is not None:
            self._ticking.cancel()
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=_GRACE)
        for path, inode in self._files:
            with contextlib.suppress(OSError):
                if os.lstat(path).st_ino == inode:
                    os.unlink(path)
        await asyncio.get_running_loop().run_in_executor(None, self.service.close)

    # ---- what its connections ask
    def admit(self, connection: Connection, transport: asyncio.Transport) -> tuple[str, Rights | None]:
        """See `connection.Host`."""
        self.connections.add(connection)
        if sum(each.is_open for each in self.connections) > self.service.limits.peers:
            self._make_room(connection)
        peer = transport.get_extra_info("socket")
        if peer.family == socket.AF_UNIX:
            pid, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if uid not in (os.geteuid(), 0):
                raise PermissionError("this socket is for its owner alone")
            return f"process {pid}", Everything()
        name = ":".join(map(str, transport.get_extra_info("peername")[:2]))
        if transport.get_extra_info("peercert"):
            return name, Everything()
        return name, None if self._tokens is not None else Everything()

    def _make_room(self, newcomer: Connection) -> None:
        """
        Leave whoever has said nothing for the longest time: strangers would keep out those who have something to say.

        Raises:
            PermissionError: all of them have said something.
        """
        others = (each for each in self.connections if each is not newcomer and each.is_open)
        silent = {since: each for each in others if (since := each.silent_since) is not None}
        if not silent:
            raise PermissionError(_FULL)
        silent[min(silent)].leave(_FULL)

    def rights(self, token: str) -> Rights | None:
        """See there."""
        return None if self._tokens is None else self._tokens.rights(token)

    def gone(self, connection: Connection) -> None:
        """See there."""
        self.connections.discard(connection)


def tls_of(certificate: str, key: str | None, client_ca: str | None, *, tokens: bool) -> ssl.SSLContext:
    """
    Return TLS 1.3 with that certificate; with *client_ca*, clients' certificates are asked for, and a token does, too.

    Raises:
        OSError, ssl.SSLError: a file cannot be read, or is none.
    """
    for each in filter(None, (certificate, key, client_ca)):
        open(each, "rb").close()  # what OpenSSL says of a file that is missing has no name
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL if tokens else ssl.CERT_REQUIRED
    return context


@contextlib.contextmanager
def locked(root: str, private: str = PRIVATE) -> Iterator[None]:
    """
    Be the one server of *root*, of those whose own directory there is *private*.

    Raises:
        NotFound: there is no such directory.
        Busy: another process serves it.
        Unsafe: it is not ours, or others can write to it.
    """
    try:
        info = os.stat(root)
    except FileNotFoundError:
        raise errors.NotFound(f"cannot serve {root}: there is no such directory") from None
    if info.st_uid != os.geteuid() or info.st_mode & 0o022:
        raise errors.Unsafe(f"cannot serve {root}: it is not ours, or others can write to it; nothing was changed")
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.join(root, private), 0o700)
    if not stat.S_ISDIR(os.lstat(os.path.join(root, private)).st_mode):
        raise errors.Unsafe(f"cannot serve {root}: {private} in it is not a directory of its own; nothing was changed")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(os.path.join(root, private, "lock"), flags, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.Busy(f"cannot serve {root}: another process does") from None
        yield
    finally:
        os.close(fd)


def serve(
    root: str | os.PathLike[str],
    listen: str | Sequence[str] | None = None,
    *,
    create: bool = False,
    token_file: str | os.PathLike[str] | None = None,
    certificate: str | None = None,
    key: str | None = None,
    client_ca: str | None = None,
    limits: Limits | None = None,
    on_start: Callable[[list[str]], object] | None = None,
) -> None:
    """
    Serve the queues below the directory *root*, until SIGTERM or SIGINT; both end it cleanly.

    A queue ROOT/NAME is `//host/NAME#Queue` for its clients. What is under way when it ends is answered.

    Args:
        listen: "tcp:HOST:PORT" or "unix:PATH", or several; ROOT/.serve/socket by default. A port 0 is any free one.
        create: make a queue that somebody who may append to it asks for.
        token_file: who connects by TCP shows a token of this file (see docs/how-to/serve.md).
        certificate: a PEM file; TCP is TLS 1.3 then.
        key: the certificate's key, if it is in another file.
        client_ca: a PEM file; clients with a certificate of that authority may do everything.
        limits: what a peer may cost.
        on_start: called with the addresses when it listens.

    Raises:
        NotFound: there is no directory *root*.
        Busy: another process serves it, or listens there.
        Unsafe: others can write to *root* or to the tokens; or other machines reach an address, without TLS and tokens
            or clients' certificates.
        BadFormat: a line of *token_file* is none.
        ValueError: an address is none; or key or client_ca without a certificate.
        OSError: the system refuses an address or a file.
    """
    home = os.path.realpath(os.path.expanduser(root))
    if certificate is None and (key is not None or client_ca is not None):
        raise ValueError("key and client_ca are for TLS, which takes a certificate")
    with locked(home):
        words = [f"unix:{os.path.join(home, PRIVATE, 'socket')}"] if listen is None else listen
        places = [addresses.parse(each) for each in ([words] if isinstance(words, str) else words)]
        tokens = None if token_file is None else Tokens(token_file)
        tls = None if certificate is None else tls_of(certificate, key, client_ca, tokens=tokens is not None)
        service = Service(home, create=create, limits=limits)
        with (
            _handlers_as_before(),
            asyncio.Runner(loop_factory=None if uvloop is None else uvloop.new_event_loop) as runner,
        ):
            runner.run(_serve(Server(service, places, tokens=tokens, tls=tls), on_start))


_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Scarce:
    """Tells the log, in one line a while, that nobody can be let in for want of descriptors; the loop tries again."""

    def __init__(self) -> None:
        """Nothing was said yet."""
        self._said = -_SAY_AGAIN

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say it."""
        problem = context.get("exception")
        if not isinstance(problem, OSError) or problem.errno not in _SCARCE:
            loop.default_exception_handler(context)
        elif loop.time() - self._said >= _SAY_AGAIN:
            self._said = loop.time()
            _log.error("cannot let anybody in now, and try again: %s", problem.strerror)


@contextlib.contextmanager
def _handlers_as_before() -> Iterator[None]:
    """Where the server ends with an error, uvloop leaves its own behind, which would swallow every later interrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _serve(server: Server, on_start: Callable[[list[str]], object] | None) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(Scarce())
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
    told = await server.start()
    try:
        if on_start is not None:
            on_start(told)
        await over.wait()
    finally:
        await server.stop()

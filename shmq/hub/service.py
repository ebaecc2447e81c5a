"""
The hub: where it listens, whom it lets in, and how it ends. Each link has a thread of its own, so no client waits for
another one's disk, clock or silence.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from shmq import errors, given
from shmq.hub.arrivals import ASIDE, PRIVATE, Arrival, Turns, Way
from shmq.hub.clients import Clients
from shmq.net import addresses
from shmq.net.server import locked, tls_of
from shmq.replica import Stop, doors, encrypted
from shmq.replica.service import receive

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from shmq.hub.clients import Client

LINKS = 1000
LINKS_OF_ONE = 256
"""Links of one client, so that one cannot take all."""
STRANGERS = 64
"""Links of those who have not said yet who they are."""
_HELLO_S = 5.0
_STEP = 0.1
_GRACE = 10.0
"""Seconds for what is under way when the hub ends; nothing is lost by an end in the middle."""
_log = logging.getLogger("shmq")


def serve(
    root: str | os.PathLike[str],
    listen: str | Sequence[str],
    *,
    token_file: str | os.PathLike[str],
    certificate: str | None = None,
    key: str | None = None,
    as_sej: bool = False,
    stop: Stop | None = None,
    on_start: Callable[[list[str]], object] | None = None,
) -> None:
    """
    Have the queues of clients followed below the directory *root*, until *stop* is called.

    A client's queue is ROOT/CLIENT.QUEUE or ROOT/CLIENT.BIT.INDEX, and made when it first comes.

    Args:
        root: a directory that is there.
        listen: "tcp:HOST:PORT", or several. A port 0 is any free one.
        token_file: its clients: lines with the right `replicate` (docs/how-to/hub.md). It is read once.
        certificate: a PEM file; every address is TLS 1.3 then.
        key: the certificate's key, if it is in another file.
        as_sej: write what real sej reads, ROOT/NAME/jnl, with offsets that count, and beside it `shmq.map`, in which
            each has its index (`hub.Map`); the followers lie in ROOT/.hub/queues.
        stop: ends it, soon, when it is called.
        on_start: called with the addresses when clients may come.

    Raises:
        NotFound: there is no directory *root*.
        Busy: another hub has it.
        Unsafe: others can write to *root*, or read the tokens; or other machines reach an address, which has no
            certificate.
        BadFormat: a line of *token_file* is none, or is of no client.
        ValueError: an address is none, or a file's; or a key without a certificate.
        OSError: the system refuses an address or a file.
    """
    home = os.path.realpath(os.path.expanduser(given.path("root", root)))
    if certificate is None and key is not None:
        raise ValueError("key is for TLS, which takes a certificate")
    places = [addresses.parse(each) for each in ([listen] if isinstance(listen, str) else listen)]
    if not places or any(isinstance(each, addresses.Unix) for each in places):
        raise ValueError("a hub listens at tcp:HOST:PORT: by a socket file all clients would be one user")
    with locked(home, PRIVATE):
        tls = None if certificate is None else tls_of(certificate, key, None, tokens=True)
        if as_sej:
            os.makedirs(os.path.join(home, ASIDE), 0o700, exist_ok=True)
        hub = _Hub(home, Clients(token_file), tls, as_sej=as_sej)
        with contextlib.ExitStack() as opened:
            told: list[str] = []
            listening: list[socket.socket] = []
            for place in places:
                found = addresses.bound(place, everywhere=tls is not None)
                listening += [opened.enter_context(each) for each in found]
                told.append(addresses.shown(place, found[0]))
            if on_start is not None:
                on_start(told)
            hub.run(listening, stop or Stop())


class _Hub:
    """What the threads of one hub share."""

    def __init__(self, root: str, clients: Clients, tls: ssl.SSLContext | None, *, as_sej: bool) -> None:
        self._root, self._clients, self._tls, self._as_sej = root, clients, tls, as_sej
        self._turns = Turns()
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, float] = {}
        self._ways: dict[Way, str] = {}
        self._threads: set[threading.Thread] = set()

    def run(self, listening: list[socket.socket], stop: Stop) -> None:
        """Let in whoever comes, until the end."""
        poll = select.poll()
        by_fd = {each.fileno(): each for each in listening}
        for each in listening:
            each.setblocking(False)
            poll.register(each, select.POLLIN)
        while not stop.is_set():
            for fd, _ in poll.poll(_STEP * 1000):
                try:
                    came, _ = by_fd[fd].accept()
                except (BlockingIOError, ConnectionError):
                    continue
                except OSError as problem:  # no more descriptors: those who are here go on
                    _log.warning("nobody can come to %s: %s", self._root, problem.strerror)
                    stop.pause(_STEP)
                    continue
                self._let_come(came)
            self._leave_slow_ones()
        self._end()

    def _let_come(self, came: socket.socket) -> None:
        with self._lock:
            if len(self._strangers) >= STRANGERS or len(self._threads) >= LINKS:
                came.close()
                return
            came.settimeout(_HELLO_S)
            doors.tell_of_death(came)
            watched = came.dup()  # TLS takes the other one
            self._strangers[watched] = time.monotonic()
            thread = threading.Thread(target=self._meet, args=(came, watched), name="shmq-hub", daemon=True)
            self._threads.add(thread)
        thread.start()

    def _leave_slow_ones(self) -> None:
        """Whoever takes too long to say who it is."""
        late = time.monotonic() - _HELLO_S
        with self._lock:
            for each in [each for each, since in self._strangers.items() if since < late]:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _meet(self, came: socket.socket, watched: socket.socket) -> None:
        """One link, from its beginning to its end, in its thread."""
        try:
            client = None
            try:
                came, client = self._recognized(came)
            except (OSError, errors.Unsafe) as problem:
                _log.info("somebody came who is not a client: %s", problem)
            finally:
                with self._lock:
                    del self._strangers[watched]
                watched.close()
            with came:
                if client is not None:
                    self._follow(came, client)
        except Exception:  # noqa: BLE001  # whatever one client sends, it ends its own link alone
            _log.exception("a link of a client ended")
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _recognized(self, came: socket.socket) -> tuple[socket.socket, Client]:
        with contextlib.ExitStack() as on_error:
            on_error.callback(came.close)
            if self._tls is not None:
                came = encrypted.came(came, self._tls)
                on_error.callback(came.close)
            client = self._clients.of(doors.let_in(came, self._clients))
            on_error.pop_all()
        return came, client

    def _follow(self, came: socket.socket, client: Client) -> None:
        with Way(came, self._root) as way:
            with self._lock:
                if sum(name == client.name for name in self._ways.values()) >= LINKS_OF_ONE:
                    _log.warning("%s has %d links already", client.name, LINKS_OF_ONE)
                    return
                self._ways[way] = client.name
            try:
                with Arrival(self._root, client, way, self._turns, as_sej=self._as_sej) as arrival:
                    receive(arrival, way)
            finally:
                with self._lock:
                    del self._ways[way]

    def _end(self) -> None:
        """Have all links end, and what came on the disk."""
        until = time.monotonic() + _GRACE
        while time.monotonic() < until:
            with self._lock:
                ending, threads = [*self._ways], [*self._threads]
            for way in ending:
                way.end()
            if not threads:
                return
            threads[0].join(_STEP)

"""
Where a follower listens, and who may come in.

    unix:PATH        a socket in the file system, closed to all but its user
    tcp:HOST:PORT    of this machine alone, for those who know a token: each side proves to the other that it does

Between machines something else has to keep the secret: `ssh -L` leads to either. A hub (shmq/hub) is reached from other
machines by TLS, and has a token for each client. Whoever listens keeps hashes of tokens alone, and those are what both
sides prove.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import logging
import os
import queue
import re
import socket
import stat
import struct
import threading
import time
from typing import TYPE_CHECKING

from shmq import errors
from shmq.closable import Closable
from shmq.replica import encrypted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

UNIX, TCP = "unix:", "tcp:"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_NONCE = 32
_PROOF = 32
_HELLO_S = 5.0
"""Seconds in which a side has to prove that it knows the token."""
_UNPROVEN = 32
"""So many may be about to do so at once; when one more comes, the one that has taken the longest is sent away."""
_REFUSED = b"shmq: another token is wanted".ljust(32, b"\0")
"""In the place of a proof: that of the other side was wrong."""
_PEER = struct.Struct("3i")
_TOKEN_MIN = 16
_PAUSE = 0.1
"""Seconds before the next try, where nobody could be taken."""
_LEAST = 0.001
_log = logging.getLogger("shmq")


def is_address(place: str) -> bool:
    """Whether that is where somebody listens, and no path."""
    return place.startswith((UNIX, TCP))


def target(place: str) -> str:
    """
    That place, where a follower is or is reached.

    Raises:
        ValueError: it looks like an address, and is none; it would be taken for a directory.
    """
    if _SCHEME.match(place) and not is_address(place):
        raise ValueError(
            f"cannot replicate to {place!r}: a directory, unix:PATH or tcp:HOST:PORT is wanted; for a directory of "
            f"that name write ./{place}"
        )
    return place


def token_in(path: str) -> bytes:
    """
    The secret in that file.

    Raises:
        Unsafe: others may read it, or it is shorter than 16 bytes.
    """
    with open(path, "rb") as file:
        info = os.fstat(file.fileno())
        token = file.read(4096).strip()
    if info.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or info.st_uid != os.geteuid():
        raise errors.Unsafe(f"cannot use the token in {path}: others have rights to it: chmod 0600 it")
    if len(token) < _TOKEN_MIN:
        raise errors.Unsafe(f"cannot use the token in {path}: it has {len(token)} bytes, and {_TOKEN_MIN} are needed")
    return token


def _host_and_port(address: str) -> tuple[str, int]:
    """Those of an address of this machine."""
    host, port, local = _parts(address)
    if not local:
        raise errors.Unsafe(
            f"cannot use {address}: only addresses of this machine are, since nothing here is encrypted; "
            "`ssh -L` leads to one of another machine"
        )
    return host, port


def _want(token: object, address: str) -> None:
    if token is None:
        raise errors.Unsafe(f"cannot use {address} without a token: any user of this machine could come in there")


def _parts(address: str) -> tuple[str, int, bool]:
    """Host, port, and whether that is this machine."""
    host, _, port = address.removeprefix(TCP).rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r}: tcp:HOST:PORT is wanted")
    local = host == "localhost"
    with contextlib.suppress(ValueError):
        local = local or ipaddress.ip_address(host).is_loopback
    return host, int(port), local


def connect(address: str, token: bytes | None, ca: str | None = None) -> socket.socket:
    """
    A connection to a follower. To another machine, or with *ca*, a PEM file of an authority, it is TLS.

    Raises:
        OSError: nobody listens there.
        Unsafe: it is no place to go, or the other side does not know the token.
    """
    if address.startswith(UNIX):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _closed_on_error(made):
            made.connect(address.removeprefix(UNIX))
            _refuse_others(made, address)
        return made
    _want(token, address)
    assert token is not None  # noqa: S101  # see above
    host, port, local = _parts(address)
    made = socket.create_connection((host, port), timeout=_HELLO_S)
    if not local or ca is not None:
        with _closed_on_error(made):
            tell_of_death(made)
            made = encrypted.called(made, host, ca)
    with _closed_on_error(made):
        theirs = _exactly(made, _NONCE)
        key = hashlib.sha256(token).digest()
        ours = os.urandom(_NONCE)
        made.sendall(ours + _proof(key, b"source", theirs, ours))
        answer = _exactly(made, _PROOF)
        if answer == _REFUSED:
            raise errors.Unsafe(f"cannot use {address}: whoever listens there has another token; nothing was sent")
        if not hmac.compare_digest(answer, _proof(key, b"follower", theirs, ours)):
            raise errors.Unsafe(f"cannot use {address}: whoever listens there does not know the token")
    return made


def tell_of_death(sock: socket.socket) -> None:
    """Have the kernel find out within a minute that a machine is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, number in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, number)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def let_in(came: socket.socket, digests: Iterable[bytes]) -> bytes:
    """
    Whose token it is that whoever came knows, by its SHA-256, which is proved in return.

    Raises:
        Unsafe: it is none of *digests*; whoever came is told so.
        OSError: the link ended before, or it took too long, however slowly each byte came.
    """
    until = time.monotonic() + _HELLO_S
    ours = os.urandom(_NONCE)
    came.sendall(ours)
    theirs, proof = _exactly(came, _NONCE, until), _exactly(came, _PROOF, until)
    came.settimeout(_HELLO_S)
    known = [each for each in digests if hmac.compare_digest(proof, _proof(each, b"source", ours, theirs))]
    if not known:
        came.sendall(_REFUSED)
        raise errors.Unsafe("somebody came who knows no token that is known here")
    came.sendall(_proof(known[0], b"follower", ours, theirs))
    return known[0]


class Door(Closable):
    """
    Where a follower listens. A context manager.

    One thread takes whoever comes, and each of those has one of its own until it is known whether it may come in: so
    nobody who says nothing keeps others waiting.
    """

    def __init__(self, address: str, known: Callable[[], Iterable[bytes]] | None) -> None:
        """
        Listen there. *known*: the SHA-256 of each token with which one may come by tcp, now.

        Raises:
            Busy: somebody else does.
            Unsafe: it is no place to listen.
        """
        self.address = address
        self._known = known or list[bytes]
        self._path = address.removeprefix(UNIX) if address.startswith(UNIX) else None
        if self._path is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with _closed_on_error(self._socket):
                self._bind(self._path)
        else:
            host, port = _host_and_port(address)
            _want(known, address)
            self._socket = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
            self.address = f"{TCP}{host}:{self._socket.getsockname()[1]}"
        self._socket.listen(_UNPROVEN)
        self._lock = threading.Lock()
        self._over = False
        self._unproven: list[socket.socket] = []
        self._tokens: dict[socket.socket, bytes] = {}
        self._inside: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._take_all, name="shmq-replica-door", daemon=True)
        self._thread.start()

    def _bind(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                    if probe.connect_ex(path) == 0:
                        raise errors.Busy(f"cannot listen at {path}: somebody else does")
                os.unlink(path)  # of somebody who was killed
        before = os.umask(0o177)
        try:
            self._socket.bind(path)
        finally:
            os.umask(before)

    def accept(self, seconds: float) -> socket.socket | None:
        """Whoever has come in by that time, the first one first; else None."""
        try:
            return self._inside.get(timeout=seconds)
        except queue.Empty:
            return None

    def token_of(self, came: socket.socket) -> bytes | None:
        """With which token it came, by its SHA-256; None where none is wanted. To be asked once."""
        with self._lock:
            return self._tokens.pop(came, None)

    def _take_all(self) -> None:
        while not self._over:
            try:
                came, _ = self._socket.accept()
            except OSError:  # it is over; or there are no descriptors left, or whoever came has gone
                time.sleep(0 if self._over else _PAUSE)
                continue
            with self._lock:
                self._unproven.append(came)
                if len(self._unproven) > _UNPROVEN:
                    _end(self._unproven.pop(0))
            try:
                threading.Thread(target=self._greet, args=(came,), name="shmq-replica-greeting", daemon=True).start()
            except RuntimeError:  # there can be no more threads
                self._forget(came)
                came.close()

    def _greet(self, came: socket.socket) -> None:
        """Have it inside, if it may come in; else it is closed."""
        try:
            with _closed_on_error(came):
                digest = self._let_in(came)
                with self._lock:
                    if self._over or came not in self._unproven:
                        raise ConnectionError("others came meanwhile, or it is over")
                    self._unproven.remove(came)
                    if digest is not None:
                        self._tokens[came] = digest
                    self._inside.put(came)
        except (OSError, errors.Unsafe) as problem:
            self._forget(came)
            _log.info("somebody was not let in at %s: %s", self.address, problem)

    def _forget(self, came: socket.socket) -> None:
        with self._lock:
            if came in self._unproven:
                self._unproven.remove(came)

    def _let_in(self, came: socket.socket) -> bytes | None:
        if self._path is not None:
            _refuse_others(came, self.address)
            return None
        came.settimeout(_HELLO_S)
        return let_in(came, self._known())

    def close(self) -> None:
        """Listen no more."""
        with self._lock:
            self._over = True
            for each in self._unproven:
                _end(each)
        _end(self._socket)
        self._thread.join()
        self._socket.close()
        while (came := self.accept(0)) is not None:
            came.close()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


def _proof(token: bytes, side: bytes, nonce: bytes, other: bytes) -> bytes:
    return hmac.digest(token, b"shmq replicate " + side + nonce + other, "sha256")


def _exactly(sock: socket.socket, count: int, until: float | None = None) -> bytes:
    """So many bytes; *until*: all of them by then, however slowly each comes."""
    there = b""
    while len(there) < count:
        if until is not None:
            sock.settimeout(max(until - time.monotonic(), _LEAST))
        part = sock.recv(count - len(there))
        if not part:
            raise ConnectionError("the link ended before it had begun")
        there += part
    return there


def _end(sock: socket.socket) -> None:
    """Have whoever waits at it find that it is over."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _refuse_others(sock: socket.socket, address: str) -> None:
    _, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if uid not in (os.geteuid(), 0):
        raise errors.Unsafe(f"cannot use {address}: it is user {uid}'s")


@contextlib.contextmanager
def _closed_on_error(sock: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sock.close()
        raise

"""
Where a server listens: `tcp:HOST:PORT` and `unix:PATH`. A socket in the file system is ours alone; an address that
others can reach is taken only where it is said that that is wanted.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import stat
from typing import NamedTuple

from shmq import errors

_TCP = re.compile(r"tcp:(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:\[\]]+)):([0-9]{1,5})")
_PORT_MOST = 65535
_BACKLOG = 128


class Tcp(NamedTuple):
    """A host and a port; port 0 is any that is free."""

    host: str
    port: int


class Unix(NamedTuple):
    """A socket in the file system."""

    path: str


def parse(text: str) -> Tcp | Unix:
    """
    Return the address that *text* says.

    Raises:
        ValueError: it says none.
    """
    if text.startswith("unix:") and len(text) > len("unix:") and "\0" not in text:
        return Unix(os.path.abspath(os.path.expanduser(text.removeprefix("unix:"))))
    found = _TCP.fullmatch(text)
    if found is None or int(found[3]) > _PORT_MOST:
        raise ValueError(
            f"{text[:200]!r} is not an address to listen at: tcp:127.0.0.1:9000 or unix:/run/orders.sock is one"
        )
    return Tcp(found[1] or found[2], int(found[3]))


def bound(address: Tcp | Unix, *, everywhere: bool) -> list[socket.socket]:
    """
    Return sockets that listen at *address*; *everywhere*: also if others than this machine can reach it.

    Raises:
        Unsafe: they could, and should not.
        Busy: somebody listens there.
        OSError: the system refuses.
    """
    return _bound_file(address.path) if isinstance(address, Unix) else _bound_tcp(address, everywhere=everywhere)


def _bound_tcp(address: Tcp, *, everywhere: bool) -> list[socket.socket]:
    try:
        return _listening(address, everywhere=everywhere)
    except OSError as problem:
        where = f"tcp:{address.host}:{address.port}"
        if problem.errno == errno.EADDRINUSE:
            raise errors.Busy(f"cannot listen at {where}: somebody does already") from None
        raise OSError(problem.errno, f"cannot listen at {where}: {problem.strerror}") from None


def _listening(address: Tcp, *, everywhere: bool) -> list[socket.socket]:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places = sorted({(family, place) for family, _, _, _, place in found})
    for _, place in places:
        if not everywhere and not ipaddress.ip_address(str(place[0]).partition("%")[0]).is_loopback:
            raise errors.Unsafe(
                f"cannot listen at tcp:{address.host}:{address.port}: other machines reach {place[0]}, which takes TLS "
                "(a certificate and its key) and tokens or clients' certificates"
            )
    if address.port == 0:  # one port, not one for each family
        places = places[:1]
    listening: list[socket.socket] = []
    try:
        for family, place in places:
            one = socket.socket(family, socket.SOCK_STREAM)
            listening.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(place)
            one.listen(_BACKLOG)
    except OSError:
        for each in listening:
            each.close()
        raise
    return listening


def _bound_file(path: str) -> list[socket.socket]:
    _remove_stale(path)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # from the first moment on it is ours alone
    try:
        one.bind(path)
    except BaseException:
        one.close()
        raise
    finally:
        os.umask(before)
    one.listen(_BACKLOG)
    return [one]


def _remove_stale(path: str) -> None:
    """
    Remove the socket of a server that is no more.

    Raises:
        Busy: one listens there.
        Unsafe: what is there is no socket.
    """
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(info.st_mode):
        raise errors.Unsafe(
            f"cannot listen at unix:{path}: something is there that is not a socket; it was not touched"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise errors.Busy(f"cannot listen at unix:{path}: somebody does already")


def shown(address: Tcp | Unix, listening: socket.socket) -> str:
    """Return the address as it is given, with the port that was found."""
    if isinstance(address, Unix):
        return f"unix:{address.path}"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"tcp:{host}:{listening.getsockname()[1]}"

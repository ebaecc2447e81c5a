"""
A link that others cannot read: TLS 1.3 over a connection, with a thread between it and whoever uses the link.

One end of a link sends in one thread and receives in another, and OpenSSL's connections are for one thread: so that
thread has it, and hands on what comes and goes through a pair of sockets of this process.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading

from shmq import errors

_AT_ONCE = 1 << 17
_WAIT = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


def called(raw: socket.socket, host: str, ca: str | None) -> socket.socket:
    """
    TLS to *host* over *raw*, which belongs to it from now on; with *ca*, a PEM file, that authority alone is believed.

    Raises:
        Unsafe: by its certificate it is not *host*, or *ca* is no such file.
        OSError: the link ended.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as problem:
        raise errors.Unsafe(f"cannot believe anybody at {host}: {ca}: {problem.strerror or problem}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        return _carried(context.wrap_socket(raw, server_hostname=host))
    except ssl.SSLCertVerificationError as problem:
        raise errors.Unsafe(f"cannot use {host}: its certificate does not say so ({problem.verify_message})") from None


def came(raw: socket.socket, context: ssl.SSLContext) -> socket.socket:
    """
    TLS with whoever came by *raw*, which belongs to it from now on.

    Raises:
        OSError: it speaks something else, or the link ended.
    """
    return _carried(context.wrap_socket(raw, server_side=True))


def _carried(tls: ssl.SSLSocket) -> socket.socket:
    timeout = tls.gettimeout()
    ours, theirs = socket.socketpair()
    for each in (tls, theirs):
        each.setblocking(False)
    ours.settimeout(timeout)
    threading.Thread(target=_carry, args=(tls, theirs), name="shmq-tls", daemon=True).start()
    return ours


def _carry(tls: ssl.SSLSocket, plain: socket.socket) -> None:
    """Hand on what comes and goes, until either end is over."""
    with tls, plain, contextlib.suppress(OSError):
        out = back = memoryview(b"")
        while True:
            _sleep(tls, plain, out, back)
            if not back and (got := _received(tls)) is not None:
                if not got:
                    return
                back = memoryview(got)
            if not out and (got := _received(plain)) is not None:
                if not got:
                    return
                out = memoryview(got)
            back = back[_sent(plain, back) :]
            out = out[_sent(tls, out) :]


def _sleep(tls: ssl.SSLSocket, plain: socket.socket, out: memoryview, back: memoryview) -> None:
    """Until something can go on; what OpenSSL has read already is no news to the kernel."""
    if tls.pending() and not back:
        return
    poll = select.poll()
    poll.register(tls, (0 if back else select.POLLIN) | (select.POLLOUT if out else 0))
    poll.register(plain, (0 if out else select.POLLIN) | (select.POLLOUT if back else 0))
    if any(event & select.POLLERR for _, event in poll.poll()):
        raise ConnectionError("the link ended")


def _received(one: socket.socket) -> bytes | None:
    """What is there now; nothing at the end, None where there is nothing yet."""
    try:
        return one.recv(_AT_ONCE)
    except _WAIT:
        return None


def _sent(one: socket.socket, content: memoryview) -> int:
    """How much of it went; what did not is sent again as it is, as OpenSSL wants it."""
    try:
        return one.send(content) if content else 0
    except _WAIT:
        return 0

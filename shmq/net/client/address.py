"""
What a csp names: a server and a queue there.

    csp://HOST:PORT/NAME            over TCP
    csp+unix:///PATH//NAME          over a Unix socket: its path, two slashes, the queue

A name has one to four parts; `acsp` in place of `csp` is the same for whoever awaits.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

_CSP = re.compile(r"a?csp(\+unix)?://(.*)", re.DOTALL)
_TCP = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^/:@\[\]]+):([0-9]{1,5})/([^#]+)")
_UNIX = re.compile(r"(/.*?[^/])//([^#]+)")
_VIEW = "#Queue"


@dataclass(frozen=True)
class Address:
    """
    Where a queue is.

    Attributes:
        text: as it was given.
        host, port: of a server that listens on TCP; no host for a Unix socket.
        path: of the Unix socket.
        queue: the name of the queue there.
    """

    text: str
    queue: str
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def of(cls, text: str) -> Address:
        """
        Read it.

        Raises:
            ValueError: it names no queue of a server.
        """
        begun = _CSP.fullmatch(text.removesuffix(_VIEW))
        form = begun and (_UNIX if begun[1] else _TCP).fullmatch(begun[2])
        if not begun or not form:
            raise ValueError(
                f"{text!r} names no queue of a server: csp://HOST:PORT/NAME or csp+unix:///PATH//NAME does"
            )
        if begun[1]:
            return cls(text, form[2], path=form[1])
        port = int(form[2])
        if not 0 < port < 1 << 16:
            raise ValueError(f"{text!r} names no queue of a server: a port is 1 to 65535")
        return cls(text, form[3], host=form[1].strip("[]"), port=port)

    def dial(self, timeout: float) -> socket.socket:
        """
        Return a socket that is connected there.

        Raises:
            OSError: nobody listens, or answers in time.
        """
        try:
            return self._dial(timeout)
        except OSError as problem:
            text = f"cannot reach {self}: {problem.strerror or problem}"
            raise (type(problem)(text) if problem.errno is None else type(problem)(problem.errno, text)) from problem

    def _dial(self, timeout: float) -> socket.socket:
        if not self.path:
            found = socket.create_connection((self.host, self.port), timeout)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            found.settimeout(timeout)
            found.connect(self.path)
        except BaseException:
            found.close()
            raise
        return found

    def __str__(self) -> str:
        """As it was given."""
        return self.text

"""A server in a process of its own, a link in between that can be cut, and queues beyond it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING

from support import Child, until

import shmq
from shmq.net import packing

if TYPE_CHECKING:
    from collections.abc import Iterator


class Serving:
    """`shmq.net.serve` in a child that can be killed and started again."""

    def __init__(self, root, *, grace: float | None = None, **options) -> None:
        self.root = root
        self.path = f"{root}/.s"
        self._grace = grace
        self._options = options
        self._child: Child | None = None
        self.start()

    def start(self) -> None:
        def serve(say) -> None:
            if self._grace is not None:
                packing.GRACE = self._grace
            shmq.net.serve(self.root, listen=f"unix:{self.path}", on_start=lambda _: say("ready"), **self._options)

        self._child = Child(serve)
        assert self._child.hear() == "ready"

    @property
    def pid(self) -> int:
        return self._child.pid

    def kill(self) -> None:
        self._child.kill()

    def signal(self, number) -> None:
        self._child.signal(number)

    def join(self) -> int:
        return self._child.join()

    def csp(self, name: str = "orders", path: str | None = None) -> str:
        return f"csp+unix://{path or self.path}//{name}"

    def connect(self, name: str = "orders", **options):
        return shmq.net.connect(self.csp(name), **options)


@contextlib.contextmanager
def serving(root, **options) -> Iterator[Serving]:
    """A server, which is gone afterwards."""
    server = Serving(root, **options)
    try:
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill()


class Cable:
    """
    Unix socket to Unix socket, by threads: it can be cut, cut after so many bytes, and be silent without an end.
    """

    def __init__(self, path: str, to: str) -> None:
        self.path, self._to = path, to
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._left: dict[str, int | None] = {"up": None, "down": None}
        self.silent = threading.Event()
        self.refuses = False
        self.made = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                if self.refuses:
                    raise ConnectionRefusedError
                far.connect(self._to)
            except OSError:
                near.close()
                far.close()
                continue
            with self._lock:
                self.made += 1
                self._pairs.append((near, far))
            threading.Thread(target=self._carry_both, args=(near, far), daemon=True).start()

    def _carry_both(self, near, far) -> None:
        with near, far:
            up = threading.Thread(target=self._carry, args=(near, far, "up"), daemon=True)
            up.start()
            self._carry(far, near, "down")
            up.join()

    def _carry(self, source, target, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.silent.is_set():
                    continue
                data, is_last = self._upto_cut(data, way)
                target.sendall(data)
                if is_last:
                    self.cut()
                    break
        self._close(source, target)

    def _upto_cut(self, data: bytes, way: str) -> tuple[bytes, bool]:
        """What of it goes through, and whether the cable is cut behind that, whatever is asked of it meanwhile."""
        with self._lock:
            left = self._left[way]
            if left is None or len(data) < left:
                self._left[way] = None if left is None else left - len(data)
                return data, False
            self._left[way] = None
            return data[:left], True

    def _close(self, *both) -> None:
        for each in both:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Now, and what is under way is lost."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            self._close(*pair)

    def cut_after(self, nbytes: int, way: str = "up") -> None:
        """When so many bytes more have gone through."""
        self._left[way] = nbytes

    def was_cut(self, made: int) -> None:
        """Wait until somebody has come back."""
        until(lambda: self.made > made)

    def close(self) -> None:
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def cable(server: Serving) -> Iterator[Cable]:
    """A link to *server*."""
    made = Cable(f"{server.root}/.c{os.getpid()}", server.path)
    try:
        yield made
    finally:
        made.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made.path)


def payloads(path) -> list[bytes]:
    """All that is in the queue, in order."""
    with shmq.open(path, create=False) as queue:
        return [message.payload for message in queue.reader()]

"""
Two machines and a bad line between them: network namespaces, each with a TUN device, and a link in user space that
delays what it carries, loses some of it, and can be cut, both ways or one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest
from support import Child, in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE, THERE = "10.97.0.2", "10.97.0.1"
"""The addresses of the client and of the server."""
_TUN = "/dev/net/tun"
_SET_INTERFACE = 0x400454CA
_IS_TUN, _NO_INFORMATION = 0x0001, 0x1000
_NEW_NET, _NEW_USER = 0x40000000, 0x10000000
_PACKET = 65536


def enter(own: str, other: str) -> int:
    """Put this process, which has one thread, on a machine of its own; return the line that leads from there."""
    user, group = os.geteuid(), os.getegid()
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NET | (_NEW_USER if user else 0)):
        raise OSError(ctypes.get_errno(), "unshare")
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    line = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(line, _SET_INTERFACE, struct.pack("16sH22x", b"far0", _IS_TUN | _NO_INFORMATION))
    for words in ("link set lo up", f"addr add {own} peer {other} dev far0", "link set far0 up"):
        subprocess.run(["ip", *words.split()], check=True, capture_output=True)
    return line


def can() -> str:
    """Why that cannot be done here; empty when it can."""
    if shutil.which("ip") is None:
        return "there is no ip"

    def tries() -> str:
        try:
            enter(HERE, THERE)
        except (OSError, subprocess.CalledProcessError) as problem:
            return f"no: {problem}"
        return ""

    return in_child(tries)


class Far:
    """
    A process on a machine of its own. It does its work once the line is there.

    Attributes:
        line: which carries what it sends and what comes to it.
    """

    def __init__(self, own: str, other: str, work: Callable[..., None]) -> None:
        near, far = socket.socketpair()

        def live(say) -> None:
            near.close()
            socket.send_fds(far, [b"l"], [enter(own, other)])
            assert far.recv(1) == b"g"
            work(say)

        self.child = Child(live)
        far.close()
        with near:
            _, (self.line,), _, _ = socket.recv_fds(near, 1, 1)
            near.sendall(b"g")

    def __enter__(self) -> Child:
        return self.child

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()
        os.close(self.line)


class Air:
    """
    What carries packets between two lines.

    Attributes:
        carries: of each way, "up" from the first line and "down" from the second, whether anything comes through.
        carried: how many packets came through.
    """

    def __init__(self, first: int, second: int, *, delay: float, loss: float) -> None:
        self.carries = {"up": True, "down": True}
        self.carried = 0
        self._ways = {first: ("up", second), second: ("down", first)}
        self._delay, self._loss = delay, loss
        self._random = random.Random(7)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def cut(self) -> None:
        """Nothing comes through, and nobody is told."""
        self.carries.update(up=False, down=False)

    def mend(self) -> None:
        """All comes through again."""
        self.carries.update(up=True, down=True)

    def _carry(self) -> None:
        under_way: list[tuple[float, int, int, str, bytes]] = []
        poll, number = select.poll(), 0
        for line in self._ways:
            poll.register(line, select.POLLIN)
        while not self._over.is_set():
            wait = 0.05 if not under_way else min(max(under_way[0][0] - time.monotonic(), 0), 0.05)
            for line, _ in poll.poll(wait * 1000):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        packet = os.read(line, _PACKET)
                        way, to = self._ways[line]
                        if self.carries[way] and self._random.random() >= self._loss:
                            number += 1
                            heapq.heappush(under_way, (time.monotonic() + self._delay, number, to, way, packet))
            while under_way and under_way[0][0] <= time.monotonic():
                *_, to, way, packet = heapq.heappop(under_way)
                if self.carries[way]:
                    with contextlib.suppress(OSError):  # its machine is gone, or it takes no more
                        os.write(to, packet)
                        self.carried += 1

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@contextlib.contextmanager
def apart(
    serve: Callable[..., None], use: Callable[..., None], *, delay: float, loss: float
) -> Iterator[tuple[Child, Air]]:
    """A server at THERE, a client at HERE, and the air between: *delay* seconds each way, and so much of it is lost."""
    why = can()
    if why:
        pytest.skip(f"no two machines here: {why}")
    with contextlib.ExitStack() as stack:
        server = Far(THERE, HERE, serve)
        assert stack.enter_context(server).hear() == "ready"
        client = Far(HERE, THERE, use)
        stack.enter_context(client)
        air = Air(client.line, server.line, delay=delay, loss=loss)
        stack.callback(air.close)
        yield client.child, air

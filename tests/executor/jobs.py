"""What tasks do in these tests: found by name, in any process."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def double(x):
    return 2 * x


def pid():
    return os.getpid()


def keyword(*, key):
    return key


def note(path, text="x"):
    """One line more in a file, whole."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)
    return text


def lines(path):
    return Path(path).read_text().splitlines() if os.path.exists(path) else []


def wait_for(path, seconds=30.0):
    end = time.monotonic() + seconds
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise TimeoutError(path)
        time.sleep(0.002)
    return str(path)


def note_and_wait(begun, go):
    note(begun, os.getpid())
    return wait_for(go)


def come_back_twice():
    """Fork, and come back in the child, too; in the parent with how that ended."""
    from support import fork  # where workers of another terminal find these functions, it is not found

    child = fork()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else "child"


def die(number=signal.SIGKILL, path=None):
    if path is not None:
        note(path, os.getpid())
    os.kill(os.getpid(), number)
    time.sleep(60)


def die_at_first(path, times, value):
    note(path, os.getpid())
    if len(lines(path)) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    return value


def fail(kind=ValueError, text="on purpose"):
    raise kind(text)


def fail_at_first(path, times, value):
    note(path, os.getpid())
    if len(lines(path)) <= times:
        raise OSError(f"time {len(lines(path))}")
    return value


def leave(status):
    os._exit(status)


def leave_well():
    sys.exit(7)


def sleep(seconds):
    time.sleep(seconds)
    return seconds


class Unpicklable:
    def __reduce__(self):
        raise TypeError("this one stays here")


def unpicklable():
    return Unpicklable()


class BadException(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fail_badly():
    raise BadException("this", "that")


_ready = []


def set_up(path, word):
    _ready.append(word)
    note(path, os.getpid())


def what_was_set_up():
    return list(_ready)


def refuse_to_start():
    raise RuntimeError("no database, on purpose")


def submit_within(path, wait=True):
    """A task that submits another one, and waits for it."""
    import shmq

    with shmq.Executor(path, max_workers=0) as inner:
        future = inner.submit(double, 21)
        return future.result(timeout=60) if wait else future.id.hex()


def allocate(megabytes, seconds):
    block = bytearray(megabytes << 20)
    block[::4096] = b"x" * len(block[::4096])
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def capture(*args, **kwargs):
    return args, kwargs

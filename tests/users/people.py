"""
Real users, as children of root: two of one group, one who is not in it; and what their files must be like.

Skips, and says why, where we are not root or the users could not read the library.
"""

import contextlib
import ctypes
import importlib
import os
import pkgutil
import shutil
import stat
import tempfile

import pytest

import shmq
from tests.support import Child, in_child

_OURS = 10_000_000 + 8 * os.getpid()
ALICE, BOB, EVE = range(_OURS, _OURS + 3)
APP, OTHER = _OURS + 4, _OURS + 5
"""By number, for the machine need not have names for them; and of this process, for others may run the same tests."""
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000


def become(uid, *groups):
    """Be that user from now on, in these groups; its first group is its own."""
    os.setgroups(list(groups))
    os.setgid(uid)
    os.setuid(uid)


def by(uid, work, *arguments, groups=(APP,)):
    """What *work*(*arguments*) answers, or refuses, done by that user in a child."""

    def attempt():
        become(uid, *groups)
        try:
            return work(*arguments)
        except (shmq.ShmqError, OSError, ValueError, TypeError) as problem:
            return f"{type(problem).__name__}: {problem}"

    return in_child(attempt)


def person(uid, work, *arguments, groups=(APP,)):
    """A child of that user that says words, and may be killed."""

    def live(say):
        become(uid, *groups)
        work(say, *arguments)

    return Child(live)


def _import_all():
    """Before users change: the interpreter may lie where only root may read."""
    for name in ("grp", "json", "logging", "msgspec", "pickle", "queue", "shutil", "traceback", "warnings"):
        importlib.import_module(name)
    engine = ("shmq.storage", "shmq.storage.recover", "shmq.taking", "shmq.putting", "shmq.reading")
    for package in (*engine, "shmq.cli", "shmq.shards"):
        for each in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(each.name)
    for each in pkgutil.iter_modules(shmq.__path__, "shmq."):
        if not each.ispkg and each.name != "shmq.__main__":
            importlib.import_module(each.name)


def why_not():
    """Why no other user can be had here; nothing, if they can."""
    if os.geteuid():
        return "being other users takes root"
    _import_all()

    def look():
        with shmq.open(None) as queue:
            return queue.put(b"x")

    try:
        answer = by(ALICE, look)
    except AssertionError:
        return "a process of another user ends before it says anything"
    return "" if answer == "0" else f"another user cannot use the library: {answer}"


REASON = why_not()
several = pytest.mark.skipif(bool(REASON), reason=REASON)


@contextlib.contextmanager
def common_place():
    """A directory in which all users of the group may make things, and others look."""
    path = tempfile.mkdtemp(prefix="shmq-users-", dir="/tmp")
    try:
        os.chown(path, 0, APP)
        os.chmod(path, 0o2775)
        yield path
    finally:
        shutil.rmtree(path)
        for group in (APP, OTHER):
            shutil.rmtree(f"/dev/shm/shmq-g{group}", ignore_errors=True)


def misfits(path, group=APP):
    """What below that directory, itself included, the group does not share exactly as it should."""
    found = []
    for folder, _, names in os.walk(path):
        for each, mode in [(folder, 0o2770), *((f"{folder}/{name}", 0o660) for name in names)]:
            info = os.lstat(each)
            if (stat.S_IMODE(info.st_mode), info.st_gid) != (mode, group):
                found.append(f"{each}: {stat.S_IMODE(info.st_mode):#o} of {info.st_gid}")
    return found


def owners(path):
    """Which users own something there."""
    return {os.lstat(f"{folder}/{name}").st_uid for folder, _, names in os.walk(path) for name in names}


def unshare(flags):
    """As the system call; an OSError where the machine forbids it."""
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

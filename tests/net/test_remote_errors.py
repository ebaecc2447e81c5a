"""Errors of a server are at its client what they are there: class, text, index and errno; and they say who."""

import builtins
import errno
import inspect
import os

import pytest
from remote import serving

import shmq
from shmq import errors
from shmq.net import packing
from shmq.net.service import Service
from shmq.net.shmq1 import reading

PUBLIC = [each for _, each in inspect.getmembers(errors, inspect.isclass) if each.__module__ == errors.__name__]


def _made(kind: type[Exception]) -> Exception:
    """One with all that it takes."""
    taken = list(inspect.signature(kind.__init__).parameters.values())[1:]
    if any(each.kind is each.VAR_POSITIONAL for each in taken):
        return kind(f"a {kind.__name__}, and what is still true")
    return kind(*("text of it" if each.default is each.empty else 1000 + at for at, each in enumerate(taken)))


PROBLEMS = [
    *(_made(each) for each in PUBLIC if not each.__name__.startswith("_")),
    *(_made(each) for each in (errors.Gone, errors.SyncPending, errors.SyncFailed)),
    errors.SyncPending("nobody knows"),
    errors.Gone("all of it"),
    OSError(errno.EIO, os.strerror(errno.EIO)),
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)),
    PermissionError(errno.EACCES, os.strerror(errno.EACCES)),
    PermissionError("in words alone"),
    OSError("in words alone"),
    TimeoutError("in time"),
    KeyError("a key"),
    IndexError("an index"),
    OverflowError("a number"),
    NotImplementedError("a verb"),
    TypeError("a type"),
    ValueError("a value"),
]


def _same(found: BaseException, local: Exception) -> None:
    assert type(found) is type(local)
    assert str(found) == str(local)
    assert vars(found) == vars(local)
    assert getattr(found, "errno", None) == getattr(local, "errno", None)
    for base in (shmq.ShmqError, shmq.Empty, shmq.Full, builtins.OSError):
        assert isinstance(found, base) == isinstance(local, base)


def test_all_classes_are_tried():
    assert {type(each) for each in PROBLEMS} >= {
        getattr(shmq, each.__name__) for each in PUBLIC if hasattr(shmq, each.__name__)
    }
    assert len(PUBLIC) > 20


@pytest.fixture(scope="module")
def raising(tmp_path_factory):
    """A server that answers a question with the error of that number, and so a client that comes."""
    root = tmp_path_factory.mktemp("root")
    root.chmod(0o700)
    shmq.open(root / "orders").close()

    def fails(_, number):
        raise PROBLEMS[number]

    hold = Service.hold

    def held(self, name, **options):
        if name != "orders":
            raise PROBLEMS[int(name[1:])]
        return hold(self, name, **options)

    with pytest.MonkeyPatch.context() as patch:  # the server is forked from here
        patch.setitem(reading.CALLS, "at_ns", fails)
        patch.setattr(Service, "hold", held)
        with serving(str(root)) as server:
            yield server


@pytest.mark.parametrize("number", range(len(PROBLEMS)), ids=lambda at: f"{type(PROBLEMS[at]).__name__}-{at}")
def test_an_error_is_the_same_on_both_sides_of_the_wire(raising, number):
    problem = PROBLEMS[number]
    _same(packing.raised(*packing.decode(packing.encode(packing.error(1, problem)))[2:]), problem)
    with raising.connect() as remote, pytest.raises(type(problem)) as found:
        remote.at_ns(number)
    _same(found.value, problem)
    if isinstance(problem, shmq.ShmqError):
        with pytest.raises(type(problem)) as found:
            raising.connect(f"q{number}")
        _same(found.value, problem)


def test_an_error_has_no_path_of_the_server(raising):
    problem = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{raising.root}/orders/queue.shmq")
    found = packing.raised(*packing.error(1, problem)[2:])
    assert type(found) is FileNotFoundError
    assert found.errno == errno.ENOENT
    assert str(raising.root) not in str(found)


def test_a_name_that_is_held_is_said_to_be_held_by_whom(orders, root):
    with serving(str(root)) as server, server.connect(client="till-7") as first, server.connect() as second:
        with first.consumer("c"):
            with pytest.raises(
                shmq.Busy, match=rf"'c' of orders is held by another client .*'till-7', process {os.getpid()};"
            ):
                second.consumer("c")
            with pytest.raises(shmq.Busy, match=r"is held by this client itself \(close it first\)"):
                first.consumer("c")
        with second.consumer("c"), pytest.raises(shmq.Busy, match="held by process"):
            orders.consumer("c")
        with orders.consumer("c"), pytest.raises(shmq.Busy, match=rf"held by process {os.getpid()} at the server;"):
            second.consumer("c")

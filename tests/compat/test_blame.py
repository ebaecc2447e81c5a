"""The part that cannot be pickled is named as a program would write it, in bounded time."""

from __future__ import annotations

import collections
import dataclasses
import pickle
import threading

import pytest

from shmq.compat import blame

LOCK = threading.Lock()


@dataclasses.dataclass
class Job:
    callback: object
    name: str = "job"


class Slotted:
    __slots__ = ("lock", "name")

    def __init__(self) -> None:
        self.lock = LOCK
        self.name = "slotted"


class Chooses:
    """Pickles without its lock; something else of it cannot be."""

    def __init__(self) -> None:
        self.lock = LOCK
        self.bad = LOCK

    def __getstate__(self):
        return {"bad": self.bad}


class Refuses:
    def __reduce__(self):
        raise ValueError("not me")


def told(obj) -> str:
    problem = ValueError("no")
    blame.note(problem, obj, lambda part: pickle.dumps(part, 5))
    return problem.__notes__[0]


CYCLE: list = [1]
CYCLE += [CYCLE, {"lock": LOCK}]


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (LOCK, "msg"),
        ({"cb": Job(LOCK)}, 'msg["cb"].callback'),
        ([0, (1, LOCK)], "msg[1][1]"),
        ({1: {b"k": [LOCK]}}, "msg[1][b'k'][0]"),
        ({'a"b': LOCK}, "msg['a\"b']"),
        (Slotted(), "msg.lock"),
        (Chooses(), "msg.bad"),
        ([Refuses()], "msg[0]"),
        ({Job: 1, "f": lambda: 0}, 'msg["f"]'),
        (collections.OrderedDict(a=1, b=LOCK), 'msg["b"]'),
        (collections.deque([1, LOCK]), "msg[1]"),
        (CYCLE, 'msg[2]["lock"]'),
        ([3] * 100_000 + [LOCK], "msg[100000]"),
    ],
)
def test_the_part_to_blame_is_named(obj, path, monkeypatch):
    monkeypatch.setattr(blame, "SECONDS", 60.0)  # on a busy machine one second may be too short
    assert told(obj).startswith(f"{path} cannot be pickled: ")


def test_a_key_can_be_to_blame():
    assert told({(1, LOCK): 1}).startswith("the key <tuple> of msg[1] cannot be pickled: _thread.lock")


def test_a_search_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(blame, "PARTS", 5)
    assert told([[[[[[[LOCK]]]]]]]).endswith("or something in it: the search was given up there")
    monkeypatch.setattr(blame, "PARTS", 10_000)
    monkeypatch.setattr(blame, "SECONDS", 0.0)
    assert told([LOCK]) == "msg cannot be pickled: builtins.list, or something in it: the search was given up there"


def test_nothing_is_said_of_depth():
    problem = RecursionError()
    blame.note(problem, [LOCK], pickle.dumps)
    assert not hasattr(problem, "__notes__")


class Breaks:
    """Raises whatever is asked of it."""

    def __reduce_ex__(self, _):
        return object(), 5, (5, 5), 5, 5


def test_what_goes_wrong_in_a_search_is_not_raised():
    problem = ValueError()
    blame.note(problem, Breaks(), lambda part: pickle.dumps(part, 5))
    assert not hasattr(problem, "__notes__")

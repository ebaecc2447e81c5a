"""
What callers give: whatever is wrong with it is said at once, in words, before anything is changed.

One table: every parameter of every public function has a kind, and every kind has what it is not. A new parameter that
has no kind fails here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import shmq

if TYPE_CHECKING:
    from collections.abc import Callable

NAN, INF, HUGE = math.nan, math.inf, 1 << 70
THING = object()
NO_NUMBERS = ("7", b"7", [], {}, THING, True)

# ---------------------------------------------------------------- what each kind is not: {error: values}
WRONG: dict[str, dict[type, tuple]] = {
    "seconds": {TypeError: NO_NUMBERS, ValueError: (-1, -0.5, NAN, INF)},
    "some seconds": {TypeError: NO_NUMBERS, ValueError: (0, -1, NAN, INF)},
    "timeout": {TypeError: NO_NUMBERS, ValueError: (-1, -0.5, NAN)},
    "flag": {TypeError: (0, 1, "no", "", [], THING, NAN)},
    "whole": {TypeError: (*NO_NUMBERS, 1.5, NAN), ValueError: (-1, HUGE)},
    "shape": {TypeError: ("7", b"7", THING, 1.5, True, [None]), ValueError: (-1, [1, -2]), shmq.TooLarge: (HUGE,)},
    "dtype": {TypeError: (7, "strange", THING, object, True)},
    "count": {TypeError: (*NO_NUMBERS, 1.5, NAN), ValueError: (0, -1)},
    "bound": {TypeError: (*NO_NUMBERS, 1.5, NAN), ValueError: (0, -1, HUGE)},
    "size": {TypeError: (*NO_NUMBERS, 1.5), ValueError: (-1,), shmq.TooLarge: (HUGE,)},
    "time_ns": {TypeError: (*NO_NUMBERS, 1.5, NAN), ValueError: (HUGE, -HUGE)},
    "any time_ns": {TypeError: (*NO_NUMBERS, 1.5, NAN)},
    "time": {TypeError: ("7", b"7", [], THING, True, 7), ValueError: (NAN,)},
    "index": {TypeError: ("7", b"7", [], {}, THING, 1.5)},
    "place": {TypeError: (b"7", [], {}, THING, True), ValueError: ("now", "", NAN)},
    "new place": {TypeError: (b"7", [], {}, THING, True), ValueError: ("now", "", NAN), IndexError: (-1, 1000, HUGE)},
    "stop": {TypeError: ("7", b"7", [], {}, THING, True), ValueError: (NAN,)},
    "path": {TypeError: (7, b"7", [], THING, 1.5, True), ValueError: ("", "a\0b")},
    "directory": {
        TypeError: (7, b"7", [], THING, 1.5, True),
        ValueError: ("", "a\0b", "shm:x", "csp://h:1/x", "csp+unix:///s/x"),
    },
    "path or none": {TypeError: (7, b"7", [], THING, 1.5, True), ValueError: ("", "a\0b")},
    "name": {TypeError: (None, 7, b"7", [], THING, True), ValueError: ("", ".", "a/b", "a" * 65, "\0")},
    "ack": {TypeError: (7, b"auto", [], THING, True), ValueError: ("", "manual")},
    "word": {TypeError: (7, b"7", [], THING, True), ValueError: ("", "strange")},
    "queue's path": {TypeError: (7, b"7", [], THING, True)},
    "window": {TypeError: (*NO_NUMBERS, 1.5), ValueError: (0, -1, 63, 100, 1 << 17)},
    "key": {TypeError: ("k", 7, [], THING, True, NAN)},
    "type": {TypeError: (*NO_NUMBERS, None, 1.5, NAN), ValueError: (-1, 65536, HUGE)},
    "headers": {TypeError: (7, "ab", b"ab", [1], THING, True, {1: 2}, {b"a": 1})},
    "dedup": {
        TypeError: (7, "ab", b"ab", [], THING, True, ("p",), ("p", 1, 2), (7, 1), (None, 1), ("p", "1"), ("p", True)),
        ValueError: (("p", -1), ("p", HUGE), ("", 1), ("p" * 2000, 1)),
    },
    "producer": {TypeError: (7, [], THING, True), ValueError: ("", "p" * 2000)},
    "token": {TypeError: (7, b"7", [], THING, True), ValueError: ("", "token")},
    "sets": {TypeError: (7, b"7", {}, THING, True, [7], [None], None)},
    "payloads": {TypeError: (7, "ab", b"ab", {}, THING, True, None, ["text"])},
    "keys": {TypeError: (7, "ab", b"ab", {}, THING, True, iter([b"a"]), ["k", "k"]), ValueError: ([b"k"],)},
    "types": {TypeError: (7, "ab", b"ab", {}, THING, ["1", 1], [1.5, 1], [True, 1]), ValueError: ([1], [1, -1])},
    "times": {TypeError: (7, "ab", b"ab", {}, THING, ["1", 1], [1.5, 1], [True, 1]), ValueError: ([1], [1, HUGE])},
    "many headers": {TypeError: (7, "ab", b"ab", {}, THING, [7, {}], [{1: 2}, {"a": 1}]), ValueError: ([{}],)},
    "columns": {TypeError: (7, b"7", {"a": 1}, THING, True, [7]), ValueError: ("strange", [], ["key", "key"])},
    "record": {TypeError: (7, "<f8", b"7", {"a": 1}, [("a", "<f8")], THING, True)},
    "batch": {TypeError: (None, 7, "ab", b"ab", [], {}, THING)},
    "consumers": {TypeError: (None, 7, "ab", b"ab", [7], [None], THING)},
    "messages": {TypeError: (None, 7, "ab", b"ab", [], THING)},
    "open queue": {TypeError: (None, 7, "ab", b"ab", [], THING)},
    "message": {ValueError: (7, "ab", [], THING)},
    "options": {TypeError: (7, "ab", {"codec": "json"}, THING, True)},
    "mode": {TypeError: (*NO_NUMBERS, 1.5), ValueError: (0, 0o640, 0o666, -1, HUGE)},
    "user group": {
        TypeError: (b"app", 1.5, True, [], object()),
        ValueError: ("no-such-group-here", "", "\0", -1, HUGE, 65534),
    },
    "chunk_bytes": {TypeError: (*NO_NUMBERS, 1.5), ValueError: (0, -1, 16385, HUGE)},
    "retention": {TypeError: (None, 7, b"acked", [], THING, True), ValueError: ("", "age")},
    "durability": {TypeError: (None, 7, b"sync", [], THING, True), ValueError: ("", "interval")},
    "followers": {
        TypeError: (None, 7, "bc", b"bc", THING, [7]),
        ValueError: ([], {}, ["a/b"], ["b", "b"], ["b", "primary"], list("bcde")),
    },
    "pin": {TypeError: (7, 0, None, b"p", [], THING), ValueError: ("", "a/b")},
    "index of a group": {TypeError: ("7", b"7", [], {}, THING, 1.5, True), ValueError: (-1,)},
    "function": {TypeError: (None, 7, "ab", [], THING)},
    "function or none": {TypeError: (7, "ab", [], THING, True)},
    "filter": {TypeError: (7, "ab", b"ab", {"types": {1}}, THING, True)},
    "prefix": {TypeError: ("k", 7, [], THING, True, NAN, None), ValueError: (b"x" * 65536,)},
    "some types": {TypeError: (7, "ab", b"ab", THING, ["1"], [1.5], [True]), ValueError: ([], [-1], [65536], [HUGE])},
    "some headers": {
        TypeError: (7, "ab", b"ab", [1], THING, True, {1: 2}, {b"a": 1}, {"a": 1.5}, {"a": []}, {"a": THING}),
        ValueError: ({"a": HUGE}, {"a": "\ud800"}, dict.fromkeys("abcdefghi", 1)),
    },
    "anything": {},
}
ONE_OF = {
    "payloads": "codec 'bytes' takes bytes-like",
    "keys": "key=",
    "types": "type=",
    "times_ns": "time_ns=",
    "headers": "a header's name=",
    "consumers": "wait(): ",
}
"""Which words tell of one of several."""

# ---------------------------------------------------------------- the kind of every parameter
PUT = {
    "key": "key",
    "type": "type",
    "time_ns": "time_ns",
    "ttl": "seconds",
    "delay": "seconds",
    "headers": "headers",
    "dedup": "dedup",
    "timeout": "timeout",
}
MANY = {
    "payloads": "payloads",
    "keys": "keys",
    "types": "types",
    "times_ns": "times",
    "headers": "many headers",
    "ttl": "seconds",
    "dedup": "dedup",
    "timeout": "timeout",
}
ARROW = {"batch": "batch", "ttl": "seconds", "dedup": "dedup", "timeout": "timeout"}
RESERVE = {
    "nbytes": "size",
    "shape": "shape",
    "dtype": "dtype",
    **{name: PUT[name] for name in PUT if name not in {"delay", "dedup"}},
}
OPTIONS = {
    "chunk_bytes": "chunk_bytes",
    "index_spacing": "bound",
    "codec": "word",
    "durability": "durability",
    "retention": "retention",
    "max_messages": "bound",
    "max_bytes": "bound",
    "full": "word",
    "checksum": "flag",
    "mode": "mode",
    "group": "user group",
    "ttl": "seconds",
}
SINGLE = {
    "start": "new place",
    "skip_corrupt": "flag",
    "ack": "ack",
    "group": "flag",
    "hold": "flag",
    "name": "name",
    "wait": "word",
    "filter": "filter",
    "ephemeral": "flag",
    "expires": "some seconds",
}
GROUP = {
    "lease": "some seconds",
    "max_attempts": "bound",
    "dead_letter": "queue's path",
    "expire_to": "queue's path",
    "ordered_by": "word",
    "window": "window",
}
GETTING = {
    "get": {"timeout": "timeout"},
    "take": {"timeout": "timeout"},
    "get_many": {"limit": "count", "timeout": "timeout"},
    "take_many": {"limit": "count", "timeout": "timeout"},
    "take_arrow": {"limit": "bound", "timeout": "timeout", "columns": "columns", "max_bytes": "bound"},
    "ack": {"messages": "messages"},
    "alarm": {"call": "function"},
    "fileno": {},
    "seek": {"to": "new place"},
    "peek": {},
    "close": {},
}
PUTTING = {"put": {"payload": "anything", **PUT}, "put_many": MANY, "put_arrow": ARROW, "reserve": RESERVE, "close": {}}
RANGE = {"start": "place", "stop": "stop"}
KINDS: dict[str, dict[str, dict[str, str]]] = {
    "shmq": {
        "open": {
            "path": "path or none",
            "create": "flag",
            "read_only": "flag",
            "options": "options",
            "trusted": "flag",
            "unsafe_filesystem": "flag",
            **OPTIONS,
        },
        "delete": {"path": "path"},
        "verify": {"path": "path", "progress": "function or none"},
        "why": {"queue": "path", "stacks": "flag"},
        "repair": {
            "path": "directory",
            "to": "directory",
            "in_place": "flag",
            "aside": "whole",
            "progress": "function or none",
        },
        "wait": {"consumers": "consumers", "timeout": "timeout"},
        "forward": {"messages": "messages", "timeout": "timeout"},
        "gc": {"dry_run": "flag"},
        "volatile_queues": {},
    },
    "Queue": {
        **PUTTING,
        "adopt": {"staged": "sets", "dedup": "dedup"},
        "adopted": {"producer": "producer"},
        "at": {"time": "time"},
        "at_ns": {"time_ns": "any time_ns"},
        "consumer": {**SINGLE, **GROUP},
        "consumers": {},
        "copy": {"to": "directory", "new_id": "flag", "progress": "function or none"},
        "drop_consumer": {"name": "name"},
        "extents": {"start": "whole", "stop": "whole"},
        "finish": {},
        "group_place": {"name": "name"},
        "latest": {"key": "key"},
        "producer": {},
        "purge": {},
        "read_arrow": {**RANGE, "columns": "columns", "max_bytes": "bound", "max_rows": "bound", "record": "record"},
        "read_columns": {**RANGE, "columns": "columns", "max_bytes": "bound", "max_rows": "bound"},
        "reader": {
            **RANGE,
            "reverse": "flag",
            "follow": "flag",
            "skip_corrupt": "flag",
            "pin": "pin",
            "filter": "filter",
        },
        "rename_consumer": {"old": "name", "new": "name"},
        "repair": {"to": "directory"},
        "set_bounds": {"max_messages": "bound", "max_bytes": "bound"},
        "configure": {
            "max_messages": "bound",
            "max_bytes": "bound",
            "full": "word",
            "retention": "retention",
            "ttl": "seconds",
        },
        "shutdown": {"immediate": "flag"},
        "stage": {},
        "staged": {"token": "token"},
        "staged_sets": {"owner": "producer"},
        "stats": {},
        "sweep_staged": {"older_than": "seconds", "owner": "producer"},
        "sync": {"timeout": "timeout"},
        "verify": {},
        "__getitem__": {"index": "index"},
    },
    "Producer": {**PUTTING, "alarm": {"call": "function"}},
    "Staged": {
        "alarm": {"call": "function"},
        **PUTTING,
        "adopt": {"dedup": "dedup"},
        "hand_over": {"owner": "producer"},
    },
    "Slot": {"commit": {"nbytes": "whole", "timeout": "timeout"}, "abort": {}, "give_up": {}, "claim_in": None},
    "Reader": {"close": {}, "get": {"timeout": "timeout"}, "alarm": {"call": "function"}, "fileno": {}},
    "Consumer": GETTING,
    "GroupConsumer": {**GETTING, "skip": {"indexes": "index of a group"}},
    "LoneConsumer": {**GETTING, "skip": {"indexes": "index of a group"}},
    "Message": {
        "ack": {},
        "nack": {"delay": "seconds"},
        "reject": {"reason": "anything"},
        "extend": {"seconds": "some seconds"},
        "forward": {"timeout": "timeout"},
    },
    "Forward": {
        "put": {
            "queue": "open queue",
            "payload": "anything",
            **{name: kind for name, kind in PUT.items() if name not in {"dedup", "timeout"}},
            "message": "message",
        }
    },
    "Options": {"__init__": OPTIONS},
    "Filter": {"__init__": {"key_prefix": "prefix", "types": "some types", "headers": "some headers"}},
    "Retention": {"age": {"seconds": "some seconds"}, "bytes": {"n": "bound"}, "acked": {}, "forever": {}},
    "Durability": {
        "interval": {"seconds": "some seconds"},
        "replicated": {"n": "bound", "followers": "followers", "name": "name"},
    },
}
FORWARDING = {
    "begin_once",
    "check_open",
    "done_below",
    "forwarded",
    "have_on_disk",
    "prepared",
    "prepared_again",
    "put_forwarded",
    "wait_for_disk",
}
"""What `forward` asks of a producer, and nobody else."""
NOT_FOR_USERS = {
    "Filter": {"compiled", "from_stored", "stored"},
    "Producer": FORWARDING,
    "Options": {
        "check_against",
        "from_json",
        "given",
        "to_json",
        "with_changes",
        "with_codec_of",
        "shared_by",
        "stored_as",
    },
    "Retention": {"of", "to_json", "__init__"},
    "Durability": {"of", "to_json", "__init__"},
    "Slot": {"claim_in", "give_up"},
    "Staged": {"adopt", *FORWARDING},
}
NO_VERBS = {"GroupMessage", "HandedOver", "Stats", "GroupStats", "ConsumerStats"}
"""Classes that nobody gives anything to, and one that is another name."""
SURFACES = {"Flow", "Executor"}
"""What rooms of their own export here: tests/flow and tests/executor ask what these are given."""


def public_functions() -> dict[tuple[str, str], Callable]:
    """Everything that a user can call by its name."""
    found = {}
    for name in shmq.__all__:
        thing = getattr(shmq, name)
        if inspect.isfunction(thing):
            found["shmq", name] = thing
        if not inspect.isclass(thing) or issubclass(thing, BaseException) or name in NO_VERBS | SURFACES:
            continue
        for each, member in inspect.getmembers(thing):
            if callable(member) and (
                each[0] != "_" or (name, each) in {("Options", "__init__"), ("Filter", "__init__")}
            ):
                found[name, each] = member
    return found


def test_every_parameter_of_every_public_function_has_a_kind():
    for (where, name), function in public_functions().items():
        if name in NOT_FOR_USERS.get(where, ()):
            continue
        assert where in KINDS, f"say in KINDS how what {where} is given is checked"
        assert name in KINDS[where], f"say in KINDS how what {where}.{name} is given is checked"
        given = {*inspect.signature(function).parameters} - {"self", "cls", "keywords", "_"}
        strange = given - set(KINDS[where][name])
        assert not strange, f"say in KINDS how {strange} of {where}.{name} is checked"


# ---------------------------------------------------------------- how each is called, all of it right
class World:
    """A queue with three messages, and whatever is called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened = contextlib.ExitStack()
        self.queue = self.opened.enter_context(shmq.open(path))
        self.queue.put_many([b"0", b"1", b"2"])

    def before(self, where: str, name: str) -> None:
        """What must be there, and is not looked at."""
        self.held = self.message() if (where, name) == ("shmq", "forward") else None
        made = {
            "Queue": lambda: self.queue,
            "Producer": self.queue.producer,
            "Staged": self.queue.stage,
            "Slot": lambda: self.queue.reserve(8),
            "Reader": self.queue.reader,
            "Consumer": lambda: self.queue.consumer("c"),
            "GroupConsumer": lambda: self.queue.consumer("g", group=True, ack="explicit"),
            "LoneConsumer": lambda: self.queue.consumer("l", ack="explicit"),
            "Message": self.message,
            "Forward": lambda: self.message().forward(),
            "shmq": lambda: shmq,
            "Options": lambda: shmq.Options,
            "Filter": lambda: shmq.Filter,
            "Retention": lambda: shmq.Retention,
            "Durability": lambda: shmq.Durability,
        }[where]()
        self.target = made
        self.function = made if name == "__init__" else getattr(made, name)

    def message(self) -> shmq.Message:
        """One that is to be acknowledged."""
        return self.queue.consumer("g", group=True, ack="explicit").get(0)

    def state(self) -> tuple:
        """What must stay as it is."""
        return (
            self.queue.next_index,
            {name: (each.head, each.pending) for name, each in self.queue.consumers().items()},
            sorted(file.name for file in self.path.parent.iterdir()),
            self.queue.options,
        )

    def right(self, where: str, name: str, parameter: str) -> dict:
        """Arguments beside which the one is wrong."""
        if parameter in {"shape", "dtype"}:
            return {"shape": 2, "dtype": "u1"}
        if where == "Forward":
            return {"queue": self.queue, "payload": b"x"}
        if name in {"put", "put_many", "put_arrow", "reserve"}:
            return {"put": {"payload": b"x"}, "put_many": {"payloads": [b"x", b"y"]}, "reserve": {"nbytes": 8}}.get(
                name, {"batch": batch()}
            )
        if where == "shmq":
            return {
                "open": {"path": self.path.parent / "other"},
                "repair": {"path": self.path},
                "verify": {"path": self.path},
                "wait": {"consumers": []},
                "why": {"queue": self.path},
                "forward": {"messages": self.held},
            }.get(name, {})
        if name == "consumer":
            group = {"group": True, "ack": "explicit"} if parameter in GROUP else {}
            return {"name": "new", **group}
        if name == "replicated":
            return {"n": 1, "followers": ["b"]}
        if name == "rename_consumer":
            return {"old": "a", "new": "b"}
        if name in {"get_many", "take_many", "take_arrow"}:
            return {"limit": 1}
        return {"adopt": {"staged": []}, "sweep_staged": {"owner": "x"}, "copy": {"to": self.path.parent / "to"}}.get(
            name, {}
        )


@functools.cache
def batch() -> object:
    """A record batch of two."""
    arrow = pytest.importorskip("pyarrow")
    return arrow.record_batch({"payload": arrow.array([b"x", b"y"])})


STARRED = {"messages", "indexes"}
CASES = [
    pytest.param(where, name, parameter, kind, id=f"{where}.{name}-{parameter}")
    for where, functions in KINDS.items()
    for name, parameters in functions.items()
    for parameter, kind in (parameters or {}).items()
    if name not in NOT_FOR_USERS.get(where, ()) and not (where == "Staged" and parameter == "dedup")
]


@pytest.mark.parametrize(("where", "name", "parameter", "kind"), CASES)
def test_what_is_wrong_with_an_argument_is_said_before_anything_is_changed(path, where, name, parameter, kind):
    if "arrow" in name:
        pytest.importorskip("pyarrow")
    world = World(Path(path))
    with world.opened:
        world.before(where, name)
        known = world.state()
        for error, values in WRONG[kind].items():
            for value in values:
                given = {**world.right(where, name, parameter), parameter: value}
                starred = [given.pop(each) for each in STARRED & set(given)]
                if name == "__getitem__":
                    starred = [given.pop("index")]
                with pytest.raises(error) as refused:
                    world.function(*starred, **given)
                told = str(refused.value)
                assert type(refused.value) is error, (value, refused.value)
                assert any(word in told for word in (parameter, repr(value), ONE_OF.get(parameter, parameter))), told
                assert world.state() == known, value


@pytest.mark.parametrize("name", ["get", "get_many", "take", "take_many", "take_arrow"])
@pytest.mark.parametrize("options", [{}, {"ack": "explicit"}, {"group": True}, {"group": True, "ack": "explicit"}])
def test_a_timeout_is_looked_at_also_when_nobody_waits(queue, name, options):
    """It was looked at when a call had to wait; `get(True)` is what users of multiprocessing.Queue write."""
    if name == "take_arrow":
        pytest.importorskip("pyarrow")
    queue.put_many([b"0", b"1"])
    with queue.consumer("c", **options) as consumer:
        get = getattr(consumer, name)
        first = (1,) if name in {"get_many", "take_many", "take_arrow"} else ()
        for wrong in (True, False, "1", b"1", [], NAN, -1, -0.5):
            with pytest.raises((TypeError, ValueError), match="timeout="):
                get(*first, wrong)
            with pytest.raises((TypeError, ValueError), match="timeout="):
                get(*first, timeout=wrong)
        with pytest.raises(TypeError, match=r"there is no block= as in queue.Queue: timeout=None waits"):
            get(*first, True)
        with pytest.raises(TypeError, match=r"block|argument"):
            get(*first, block=False)
        assert consumer.pending == 0
        assert get(*first, timeout=INF)
        assert get(*first, 0)


def test_more_arguments_than_take_has_are_refused_also_when_a_message_is_there(queue):
    queue.put(b"0")
    with queue.consumer("c") as consumer:
        with pytest.raises(TypeError, match="argument"):
            consumer.take(0, 0)
        with pytest.raises(TypeError, match="argument"):
            consumer.take(strange=1)
        with pytest.raises(TypeError, match="argument"):
            consumer.take_many(1, 0, 0)
        assert consumer.take() == b"0"


def test_numbers_of_other_libraries_are_numbers(queue):
    numpy = pytest.importorskip("numpy")
    queue.put(b"0", type=numpy.uint16(7), time_ns=numpy.int64(5), ttl=numpy.float32(60), delay=numpy.int32(0))
    queue.put_many([b"1"], types=[numpy.uint16(7)], times_ns=[numpy.int64(5)])
    assert (queue[numpy.int64(0)].type, queue[0].time_ns, queue[1].type) == (7, 5, 7)
    with queue.consumer("c", start=numpy.int64(0)) as consumer:
        assert consumer.take_many(numpy.int64(2), numpy.float64(0)) == [b"0", b"1"]
        consumer.seek(numpy.int64(1))
        assert consumer.take(numpy.int64(0)) == b"1"


def test_a_new_name_begins_within_the_queue_as_a_seek_does(queue):
    """start=1000 was moved to the end, where `seek(1000)` raises."""
    queue.put_many([b"0", b"1"])
    for options in ({}, {"group": True}):
        for start in (3, 1000, -1):
            said = rf"cannot begin at start={start}: .* has indexes from 0 to 2; no consumer was made"
            with pytest.raises(IndexError, match=said):
                queue.consumer("c", start=start, **options)
        assert queue.consumers() == {}
    with queue.consumer("c", start=2) as consumer, pytest.raises(IndexError, match=r"cannot seek to 3: .* from 0 to 2"):
        consumer.seek(3)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("get", r"queue.consumer\(name\).take\(\)"),
        ("get_nowait", "timeout=0"),
        ("put_nowait", "timeout=0"),
        ("empty", "lag"),
        ("qsize", "lag"),
        ("full", "shmq.Full"),
        ("task_done", r"message.ack\(\)"),
        ("join", "lag is 0"),
        ("join_thread", "in the queue when"),
        ("cancel_join_thread", "in the queue when"),
    ],
)
def test_a_habit_from_other_queues_is_told_what_to_use(queue, name, instead):
    with pytest.raises(AttributeError, match=f"shmq.Queue has no {name}: .*{instead}"):
        getattr(queue, name)
    assert not hasattr(shmq.Queue, name)
    assert name not in dir(queue)


@pytest.mark.parametrize("name", ["get_nowait", "empty", "qsize", "task_done", "put"])
def test_a_consumer_tells_it_too(queue, name):
    for options in ({}, {"group": True}):
        with queue.consumer(f"c{len(options)}", **options) as consumer:
            with pytest.raises(AttributeError, match=f"has no {name}: "):
                getattr(consumer, name)
            assert name not in dir(consumer)


@pytest.mark.parametrize("group", [False, True])
def test_who_means_block_of_other_queues_is_told_of_timeout(queue, group):
    with queue.consumer("c", group=group) as consumer, queue.producer() as producer:
        for call in (
            lambda: queue.put(b"x", False),
            lambda: queue.put(b"x", block=False),
            lambda: producer.put(b"x", False),
            lambda: consumer.get(True, 1),
            lambda: consumer.get(block=False),
        ):
            for _ in range(2):  # of a queue the second put is another function
                with pytest.raises(TypeError, match=r"there is no block= as in queue\.Queue: timeout=None waits"):
                    call()
                queue.put(b"x")
        with pytest.raises(TypeError, match="unexpected keyword argument 'bloc'"):
            consumer.get(bloc=False)


def test_what_belongs_to_its_process_says_what_to_pass(queue):
    for thing, again in (
        (queue.consumer("c"), r"queue.consumer\('c'\)"),
        (queue.consumer("g", group=True), r"queue.consumer\('g'\)"),
        (queue.reader(), r"queue.reader\(\)"),
        (queue.producer(), r"queue.producer\(\)"),
    ):
        with thing, pytest.raises(TypeError, match=f"pass the queue, and open it there with {again}"):
            pickle.dumps(thing)


def test_maxsize_is_told_its_name(tmp_path):
    with pytest.raises(TypeError, match=r"max_messages= is what queue\.Queue calls maxsize="):
        shmq.open(tmp_path / "q", maxsize=4)


@pytest.mark.parametrize("ack", [None, "auto"])
def test_a_lease_where_nothing_is_held_is_refused(queue, ack):
    with pytest.raises(ValueError, match='lease= needs ack="explicit"'):
        queue.consumer("g", group=True, ack=ack, lease=5.0)
    assert queue.consumers() == {}

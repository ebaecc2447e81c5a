"""What a client gets that asks for what this protocol has not, or when this machine has no descriptors left."""

from __future__ import annotations

import asyncio
import errno
import inspect
import itertools
import logging
import os
import socket

import pytest
from remote import serving

import shmq
from shmq.net import names, packing
from shmq.net import server as server_module
from shmq.net.frames import Frames, framed
from shmq.net.service import Service
from shmq.net.shmq1 import asking, client

BATCH = packing.joined([b"x"])


class Raw:
    """A client that says whatever it is told to."""

    def __init__(self, path: str, session: bytes = b"") -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(path)
        self._frames, self._come = Frames(1 << 20), []
        self._socket.sendall(framed(b"header: { wire-formats: [ Shmq1 ] }\n"))
        self._next()
        session = session or os.urandom(16)
        hello = {"version": 1, "features": [], "session": session, "queue": "orders", "client": None}
        answer = self.ask("hello", 1, hello)
        if answer[0] != "ok":
            self._socket.close()
        assert answer[0] == "ok", answer

    def _next(self):
        while not self._come:
            self._come += self._frames.feed(self._socket.recv(1 << 16))
        return self._come.pop(0).body

    def say(self, verb, tid, *given) -> None:
        self._socket.sendall(framed(packing.encode([verb, tid, *given])))

    def ask(self, verb, tid, *given):
        self.say(verb, tid, *given)
        while True:
            answer = packing.decode(self._next())
            if answer[1] == tid:
                return answer

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self._socket.close()


ODD = [
    (["consumer", 5], "consumer is asked with cid, name, options: 3 things, not 1"),
    (["consumer", [], "a", {}], "consumer: cid is not what it has to be, but list"),
    (["consumer", 5, "a", None], "consumer: options is not what it has to be, but NoneType"),
    (["consumer", 5, "a", {"wait": "spin"}], "consumers have no option 'wait' at a server"),
    (["consumer", 5, "a", {"dead_letter": 7}], "dead_letter: the name of a queue is wanted, not int"),
    (["get", 1], "get is asked with cid, received, count, timeout: 4 things, not 1"),
    (["ack"], "ack is asked with cid, indexes: 2 things, not 0"),
    (["ack", 1, [[]]], "ack: indexes is not what it has to be, but list"),
    (["credit"], "credit is asked with cid, received, granted: 3 things, not 0"),
    (["stop"], "stop is asked with tid: 1 things, not 0"),
    (["read", 0, None, "a", None, {}], "read: count is not what it has to be, but str"),
    (["call"], "this server has no call 'None'"),
    (["call", []], "this server has no call '[]'"),
    (["call", "len", 3], "the call len is not made with 1 things"),
    (["call", "message"], "the call message is not made with 0 things"),
    (["producer"], "producer is asked with again: 1 things, not 0"),
    (["put", 0], "a put without number, timeout, ends, data and options"),
    (["put", 0, None, *BATCH, 7], "a put without number, timeout, ends, data and options"),
    (["put", -1, None, *BATCH, None], "the number of a batch is 0 to 1099511627775"),
    (["put", 1 << 62, None, *BATCH, None], "the number of a batch is 0 to 1099511627775"),
    (["put", True, None, *BATCH, None], "the number of a batch is 0 to 1099511627775"),
    (["put", 1.0, None, *BATCH, None], "the number of a batch is 0 to 1099511627775"),
    (["put", 1, None, *BATCH, {"delay": 1, "keys": []}], "a delay is that of a single message"),
    (["put", 1, None, *BATCH, {"delay": 1, "keys": 7}], "a delay is that of a single message"),
    (["put", 1, None, *packing.joined([b"x", b"y"]), {"delay": 1}], "a delay is that of a single message"),
    (["put", None, None, *BATCH, {"dedup": {"a": 1}}], "dedup: a producer and a sequence are wanted"),
    (["settle", 1, "boom", 0, None], "settle: verb is not what it has to be, but str"),
    (["shut", 1, None, None, 7], "shut: unseen is not what it has to be, but int"),
]


def test_a_request_that_is_none_is_refused_in_words_of_the_protocol(root, orders):
    """Each of them, and the connection goes on."""
    with serving(root) as server, Raw(server.path) as raw:
        for tid, ((verb, *given), words) in enumerate(ODD, 2):
            kind, text = raw.ask(verb, tid, *given)[2:4]
            assert (kind, text) == ("ValueError", words)
        assert raw.ask("call", 99, "len") == ["ok", 99, 0]


def test_a_request_without_a_number_is_refused_and_not_done(root, orders):
    """It would be counted by nobody: a client could have any number of them under way."""
    with serving(root) as server, Raw(server.path) as raw:
        assert raw.ask("consumer", 2, 1, "c", {"ack": "explicit"})[0] == "ok"
        for request in (["get", 1, 0, 1, 60.0], ["put", 0, None, *BATCH, None], ["producer", False], ["call", "len"]):
            verb, *given = request
            kind, tid, *_, text, _ = raw.ask(verb, 0, *given)
            assert (kind, tid, text) == ("error", 0, f"{verb!r} is answered, and has a number that is not 0")
        assert raw.ask("call", 3, "len") == ["ok", 3, 0]


def test_what_is_under_way_is_counted_over_all_connections_of_a_session(root):
    """So is what waits for room: each connection could leave as much behind as the one before."""
    limits = shmq.net.Limits(requests=40, channels=3)
    with shmq.open(root / "orders", max_messages=1) as queue, serving(str(root), limits=limits) as server:
        queue.consumer("hold", hold=True).close()
        queue.put(b"all that there is room for")
        session = os.urandom(16)
        tids = itertools.count(10)
        with Raw(server.path, session) as raw:
            assert raw.ask("producer", 2, False)[0] == "ok"
            assert raw.ask("consumer", 3, 1, "c", {"ack": "explicit"})[0] == "ok"
            for name in ("d", "e"):
                assert raw.ask("consumer", next(tids), ord(name), name, {})[0] == "ok"
            assert raw.ask("consumer", next(tids), 9, "f", {})[2] == "TooMany"
            raw.ask("get", next(tids), 1, 0, 1, 0)
            for number in range(32):
                raw.say("put", next(tids), number, None, *BATCH, None)
        with Raw(server.path, session) as raw:
            assert raw.ask("put", next(tids), 32, None, *BATCH, None)[3] == "more than 32 batches under way"
            for _ in range(7):
                raw.say("get", next(tids), 1, 0, 1, 60.0)
        with Raw(server.path, session) as raw:
            for _ in range(33):
                raw.say("get", next(tids), 1, 0, 1, 60.0)
            assert raw.ask("call", next(tids), "len")[3] == "more than 40 requests under way"


def test_sessions_are_counted_with_those_that_may_come_back(root, orders):
    with serving(str(root), limits=shmq.net.Limits(peers=2)) as server:
        for _ in range(16):
            Raw(server.path).__exit__()
        with pytest.raises(AssertionError, match="as many clients as it may have"):
            Raw(server.path)


def test_a_batch_of_a_session_that_has_no_slot_is_one_that_nobody_can_tell_of(root, orders):
    with serving(root) as server, Raw(server.path) as raw:
        kind, text = raw.ask("put", 2, 0, 5.0, *BATCH, None)[2:4]
        assert kind == "SyncPending"
        assert "does not know the session" in text
        assert "None" not in text
        assert orders.next_index == 0


def test_without_descriptors_a_queue_is_not_said_to_be_none(root, orders, monkeypatch):
    """What cannot be looked at now may be there."""
    plain = os.open

    def out_of_them(path, *given, **named):
        if path == "orders":
            raise OSError(errno.EMFILE, "Too many open files")
        return plain(path, *given, **named)

    monkeypatch.setattr(os, "open", out_of_them)
    with pytest.raises(OSError, match="Too many open files"):
        names.path_of(str(root), "orders")
    service = Service(root)
    with pytest.raises(OSError, match="Too many open files"):
        service.hold("orders")
    service.close()
    with pytest.raises(shmq.NotFound):
        names.path_of(str(root), "nothing")


def test_nobody_let_in_for_want_of_descriptors_is_one_line_of_the_log(caplog):
    async def story():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(server_module.Scarce())
        for _ in range(50):
            problem = OSError(errno.EMFILE, "Too many open files")
            loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": problem})
        loop.call_exception_handler({"message": "another one", "exception": ValueError()})

    with caplog.at_level(logging.ERROR):
        asyncio.run(story())
    assert [record.message for record in caplog.records if record.name == "shmq.net"] == [
        "cannot let anybody in now, and try again: Too many open files"
    ]
    assert sum("another one" in record.message for record in caplog.records) == 1


def test_each_verb_is_asked_with_what_it_takes():
    """A consumer's close was refused as malformed once, in silence, when it had learnt to say one thing more."""
    for verb, asked in asking._ASKED.items():
        does = client._VERBS.get(verb)
        if does is not None:
            assert len(inspect.signature(does).parameters) - 2 == len(asked), verb  # itself, and the request's tid

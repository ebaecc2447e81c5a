"""What a queue at a server refuses as a local one does, before anything is sent."""

from __future__ import annotations

import asyncio
import datetime
import re

import pytest
from remote import payloads, serving

import shmq


@pytest.fixture
def server(root):
    """One for each test."""
    with serving(root) as started:
        yield started


WRONG_HEADERS = [
    {1: 2},
    [1],
    "x",
    5,
    {"a": {1, 2}},
    {"a": object()},
    {"a": 1 << 70},
    {"a": datetime.datetime(2026, 1, 1)},  # noqa: DTZ001  # it is the mistake
]


def test_what_a_local_put_refuses_a_remote_one_does(orders, root, server):
    with server.connect() as queue:
        cases = [("put", b"", {"headers": each}) for each in WRONG_HEADERS]
        cases += [("put_many", [b""], {"headers": [each]}) for each in WRONG_HEADERS]
        cases += [("put", b"", {"dedup": each}) for each in ("p", ("p",), ("p", -1), ("p", 1 << 70), ("", 1), (1, 2))]
        cases += [("put_many", [], {"dedup": ("p", 1)})]
        for verb, payload, named in cases:
            with pytest.raises(Exception) as here:  # whatever it is, it is the same there
                getattr(orders, verb)(payload, **named)
            with pytest.raises(here.type) as there:
                getattr(queue, verb)(payload, **named)
            assert str(there.value) == str(here.value)
        headers = {"a": [1, None, 2.5, b"b", {"c": "d"}], "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}
        assert queue[queue.put(b"", headers=headers)].headers == headers
        assert payloads(root / "orders") == [b""]


def test_a_queue_is_nothing_to_iterate_over(server, orders):
    orders.put(b"a")
    with server.connect() as queue:
        for wrong in (lambda: list(queue), lambda: b"a" in queue, lambda: iter(queue)):
            with pytest.raises(TypeError):
                wrong()


def test_what_was_opened_read_only_changes_nothing(orders, root, server):
    orders.put(b"a")
    orders.consumer("c").close()
    here = shmq.open(root / "orders", read_only=True)
    with here, shmq.open(server.csp(), read_only=True) as there:
        for verb, given in (
            ("put", [b"b"]),
            ("put_many", [[b"b"]]),
            ("submit", [b"b"]),
            ("producer", []),
            ("consumer", ["c"]),
            ("drop_consumer", ["c"]),
            ("rename_consumer", ["c", "d"]),
            ("sync", []),
            ("shutdown", []),
            ("finish", []),
        ):
            for queue in (here, there) if hasattr(here, verb) else (there,):
                with pytest.raises(shmq.Closed, match="read-only"):
                    getattr(queue, verb)(*given)
        assert [message.payload for message in there.reader()] == [b"a"]

    async def story():
        async with await shmq.aio.open(server.csp(), read_only=True) as awaited:
            for call in (
                lambda: awaited.put(b"b"),
                lambda: awaited.drop_consumer("c"),
                awaited.finish,
                awaited.shutdown,
            ):
                with pytest.raises(shmq.Closed, match="read-only"):
                    await call()
            assert (await awaited[0]).payload == b"a"

    asyncio.run(asyncio.wait_for(story(), 60))
    assert payloads(root / "orders") == [b"a"]
    orders.put(b"z")


def test_an_option_of_the_queue_is_refused_by_its_name(server, orders):
    async def awaited():
        await shmq.aio.open(server.csp(), codec="json")

    for wrong in (lambda: shmq.open(server.csp(), codec="json"), lambda: asyncio.run(awaited())):
        with pytest.raises(TypeError, match=r"codec=.*client, token, tls, timeout"):
            wrong()


@pytest.mark.parametrize("csp", ["csp://127.0.0.1:9/orders", "csp+unix:///nowhere/at/all//orders"])
def test_who_is_not_there_is_named(csp):
    with pytest.raises((ConnectionRefusedError, FileNotFoundError), match=re.escape(csp)):
        shmq.open(csp)

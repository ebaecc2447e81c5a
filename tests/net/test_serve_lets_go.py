"""A server lets go of queues: of those that are not there any more, or others now, and of those that nobody uses."""

import asyncio
import contextlib
import os
import shutil

import pytest
from peers import refusal, speak
from remote import serving
from support import DEADLINE, until

import shmq
from shmq.net import Limits
from shmq.net.service import Service


def _moved(path):
    os.rename(path, f"{path}-before")


def _emptied(path):
    for each in os.listdir(path):
        place = os.path.join(path, each)
        (shutil.rmtree if os.path.isdir(place) else os.unlink)(place)


def _linked(path):
    os.rename(path, f"{path}-before")
    os.symlink(f"{path}-before", path)


AWAY = {"moved": _moved, "removed": shutil.rmtree, "emptied": _emptied}
ways = pytest.mark.parametrize("way", AWAY)


def _put(remote, payload) -> int:
    """Its index in the queue that is there now; what was on its way to the one before is not known to be in that."""
    while True:
        try:
            return remote.put(payload, timeout=DEADLINE)
        except (shmq.NotFound, shmq.SyncPending):
            pass


@pytest.fixture
def server(root):
    with serving(str(root), limits=Limits(unused=0.5)) as made:
        yield made


@ways
def test_what_takes_a_queues_place_answers_and_not_the_one_before(root, server, way):
    shmq.open(root / "orders").close()
    with server.connect() as remote:
        assert remote.put_many([b"a", b"b"]) == range(2)
        before = remote.id
        AWAY[way](root / "orders")
        with shmq.open(root / "orders") as anew:
            assert anew.put(b"first") == 0
            assert _put(remote, b"c") == 1
            assert remote.id == anew.id != before
            assert [each.payload for each in remote.reader()] == [b"first", b"c"]
            with server.connect() as other:
                assert other.id == anew.id


@pytest.mark.parametrize("way", ["moved", "removed", "linked"])
def test_a_queue_that_is_not_there_any_more_is_not_found(root, server, way):
    shmq.open(root / "orders").close()
    with server.connect() as remote, server.connect() as waits:
        assert remote.put(b"a") == 0
        consumer = waits.consumer("c")
        assert consumer.take(timeout=DEADLINE) == b"a"
        (AWAY | {"linked": _linked})[way](root / "orders")
        if way == "linked":  # what is open is still what lies there: whoever comes anew is refused
            with pytest.raises(shmq.NotFound):
                server.connect()
            return
        with pytest.raises(shmq.NotFound, match=r"'orders' is not there any more|there is no queue 'orders'"):
            remote.put(b"b", timeout=DEADLINE)
        with pytest.raises(shmq.NotFound):  # found without a request
            consumer.get(timeout=DEADLINE)
        with pytest.raises(shmq.NotFound):
            server.connect()


def test_a_batch_on_its_way_into_the_queue_before_is_not_said_to_be_in_the_one_now(root, server):
    """The session had put into that; its numbers and its slot say nothing of this one."""
    with shmq.open(root / "orders", max_bytes=1 << 20, chunk_bytes=1 << 18) as before:
        held = before.consumer("slow", hold=True)
        with server.connect() as remote:
            big = bytes(1 << 16)
            remote.put(big)
            with contextlib.suppress(shmq.Full):
                while True:
                    before.put(big, timeout=0)
            future = remote.submit(big)
            with contextlib.suppress(TimeoutError):
                future.exception(timeout=0.3)
            held.close()
            _moved(root / "orders")
            with shmq.open(root / "orders") as anew:
                assert isinstance(future.exception(timeout=DEADLINE), (shmq.SyncPending, shmq.NotFound))
                assert _put(remote, b"x") == 0
                assert len(anew) == 1


def test_a_reader_does_not_go_on_in_another_queue(root, server):
    with shmq.open(root / "orders") as before:
        before.put_many([b"%d" % n for n in range(5)])
    with server.connect() as remote:
        reader = remote.reader(follow=True)
        assert [next(reader).payload for _ in range(5)] == [b"%d" % n for n in range(5)]
        _moved(root / "orders")
        with shmq.open(root / "orders") as anew:
            anew.put_many([b"new"] * 7)
            with pytest.raises(shmq.NotFound, match="another queue"):
                reader.get(timeout=DEADLINE)


def test_what_nobody_uses_is_closed_and_can_be_deleted(root, server):
    for name in ("orders", "finished"):
        shmq.open(root / name).close()
        with server.connect(name) as remote, remote.consumer("c") as consumer:
            remote.put(b"a")
            assert consumer.take(timeout=DEADLINE) == b"a"
            if name == "finished":
                remote.finish()
            with pytest.raises(shmq.Busy):
                shmq.delete(root / name)
        until(lambda name=name: _is_deleted(root / name))
        assert not (root / name).exists()


def _is_deleted(path) -> bool:
    try:
        shmq.delete(path)
    except shmq.Busy:
        return False
    return True


def test_a_finished_queue_that_nobody_uses_is_opened_again_by_a_put(root, server):
    shmq.open(root / "orders").close()
    with server.connect() as remote:
        remote.put(b"a")
        remote.finish()
        with pytest.raises(shmq.ShutDown):
            remote.put(b"b")
    with server.connect() as remote:
        assert remote.put(b"b") > 0


def test_a_queue_that_was_shut_down_stays_so(root):
    async def run() -> None:
        service = Service(str(root), limits=Limits(unused=0.0))
        try:
            opened = await service.held("orders")
            opened.queue.shutdown()
            service.let_go(opened)
            await service.look()
            again = await service.held("orders")
            with pytest.raises(shmq.ShutDown):
                again.queue.put(b"x")
            service.let_go(again)
        finally:
            service.close()

    shmq.open(root / "orders").close()
    asyncio.run(run())


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _mapped() -> int:
    with open("/proc/self/maps", encoding="ascii") as maps:
        return sum(1 for _ in maps)


def test_descriptors_and_mappings_do_not_grow_with_the_names_that_were_asked_for(root):
    """However soon they were: most of these are asked for within the time for which an unused one stays open."""

    async def run() -> list[tuple[int, int]]:
        service = Service(str(root), create=True)
        try:
            found = []
            for at in range(160):
                opened = await service.held(f"q{at}", make=True)
                service.writer(opened)
                service.let_go(opened)
                if at in (79, 159):
                    found.append((_open_files(), _mapped()))
            return found
        finally:
            service.close()

    before = _open_files()
    (files, mapped), (files_then, mapped_then) = asyncio.run(run())
    assert files_then <= files + 5
    assert mapped_then <= mapped + 20
    assert _open_files() <= before


def test_what_is_put_away_while_it_is_found_is_opened_anew(root, orders, monkeypatch):
    """Another thread closes what nobody uses, between the look for it and the hold."""
    service = Service(str(root), limits=Limits(unused=0.0))
    find = service._found

    def found(*names):
        there = find(*names)
        service._close_some()
        return there

    try:
        service.let_go(service.hold("orders"))
        monkeypatch.setattr(service, "_found", found)
        opened = service.hold("orders")
        assert not opened.queue.closed
        assert opened.queue.put(b"a") == 0
        service.let_go(opened)
    finally:
        monkeypatch.undo()
        service.close()


@ways
def test_calls_of_the_rfc_reach_what_lies_there_now(root, way):
    shmq.open(root / "orders").close()

    async def talk(spoken):
        made = await spoken.create("createAppender", "orders")
        assert await spoken.ask("csp: //host/orders#appender", "submit: !!binary YQ==") == {"index": 0}
        read = await spoken.create("createTailer", "orders")
        assert (await spoken.ask("csp: //host/orders#tailer", "hasNext: { index: 0 }"))["reply"] == [b"a"]
        AWAY[way](root / "orders")
        shmq.open(root / "orders").close()
        for cid, said in ((made["cid"], "submit: x"), (read["cid"], "hasNext: { index: 0 }")):
            assert refusal(await spoken.ask(f"cid: {cid}", said))[0] == "NotFound"
        found = await spoken.ask("csp: //host/orders#tailer", "hasNext: { index: 0 }")
        assert found == {"index": 0, "reply": []}
        assert await spoken.ask("csp: //host/orders#appender", "submit: !!binary Yg==") == {"index": 0}
        assert await spoken.ask("csp: //host/orders#Queue", "lastWrittenIndex: { }") == {"reply": 0}

    speak(root, talk)


def test_a_wait_for_messages_of_a_queue_that_goes_ends(root, orders):
    async def talk(spoken):
        await spoken.create("createTailer", "orders")
        asked = asyncio.create_task(spoken.ask("csp: //host/orders#tailer", "hasNext: { timeout: 50000 }"))
        await asyncio.sleep(0.1)
        _moved(root / "orders")
        await spoken.session._service.look()
        assert refusal(await asyncio.wait_for(asked, DEADLINE))[0] == "NotFound"

    speak(root, talk)


def test_a_connection_that_ends_while_it_opens_a_queue_holds_nothing(root, orders):
    async def run() -> None:
        service = Service(str(root))
        try:
            task = asyncio.create_task(service.held("orders"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            opened = await service.held("orders")
            async with asyncio.timeout(DEADLINE):
                while opened.users != 1:
                    await asyncio.sleep(0.01)
        finally:
            service.close()

    asyncio.run(run())

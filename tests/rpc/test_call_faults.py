"""What can go wrong: hostile bytes, stopped and full processes, other users, exits and interrupts in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import random
import resource
import signal
import tempfile
import threading
import time

import disks
import interrupts
import msgspec
import pytest
from interrupts import places as interruptions
from servers import Servers, with_methods
from support import Child, in_child, in_tiny, run_python, until

import shmq.rpc
from shmq.rpc import places, wire

LONG = 20
NOBODY = 65534
encode = msgspec.msgpack.encode


def requests_of(servers):
    return shmq.open(f"{servers.path}/requests")


# ---------------------------------------------------------------- hostile bytes
def hostile(me):
    """Requests that a client does not write."""
    good = [1, me, 7, "add", 0, 0, [1, 2]]
    yield from (
        b"",
        b"\x00",
        b"\xc1",
        b"\xff" * 100,
        os.urandom(1000),
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    )
    yield encode({"client": me})
    yield b"\x91" * 100_000
    whole = encode(good)
    yield from (whole[:cut] for cut in range(len(whole)))
    for at, wrong in [
        (0, -1), (0, None), (0, 1 << 63), (1, b"short"), (1, "text of 16 chars"), (1, None), (2, -1), (2, 1 << 63),
        (2, 1.5), (3, "m" * 201), (3, b"add"), (3, None), (4, 3), (4, -1), (4, True), (5, -1), (5, "soon"), (6, 7),
        (6, {"a": 1}), (6, None), (6, [[[]]] * 9),
    ]:  # fmt: skip
        yield encode([*good[:at], wrong, *good[at + 1 :]])
    yield encode([*good, {"b": 1}])
    yield encode([*good, {"__class__": 1, "self": 2}])
    yield encode([*good, [1]])
    yield encode([1, me, 7, "echo", 0, 0, [msgspec.msgpack.Ext(1, pickle.dumps(print))]])
    yield encode([1, me, 7, "echo", 0, 0, [msgspec.msgpack.Ext(99, b"")]])
    yield whole[:-3] + b"\x91" * 100_000 + b"\x90"
    yield encode([1, os.urandom(16), 7, "add", 0, 0, [1, 2]])
    yield encode([1, b"/../../../../etc", 7, "add", 0, 0, [1, 2]])


def test_no_request_harms_a_server(servers):
    child = servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client, requests_of(servers) as queue:
        me = client._link.inbox.client
        for request in hostile(me):
            queue.put(request)
        assert client.call("add", 1, 2) == 3
        rest = random.Random(7)
        whole = encode([1, me, 7, "move", 0, 0, [{"x": 1}, 2.0]])
        for _ in range(1000):
            request = bytearray(whole)
            for _ in range(rest.randrange(1, 4)):
                request[rest.randrange(len(request))] = rest.randrange(256)
            queue.put(request)
        assert client.call("add", 1, 2) == 3
        assert servers.children == [child]
        assert client.call("pid") == child.pid
        until(lambda: queue.consumers()["server"].pending == 0)  # the last one is acknowledged behind its answer
    with shmq.open(f"{servers.path}/requests.server.dead") as dead:
        assert len(dead) > 7  # what does not even say who asks


def test_who_asks_in_another_version_is_told(servers):
    servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client, requests_of(servers) as queue:
        future = client.submit("sleep", 0.2)  # and its number is answered by somebody else
        queue.put(encode([2, client._link.inbox.client, 1, "add", "something new"]))
        assert future.result(LONG) == "slept"
        slow = client.submit("sleep", 0.5)
        other = client.submit("add", 1)
        queue.put(encode([2, client._link.inbox.client, 4, "add", "something new"]))
        assert (slow.result(LONG), other.result(LONG)) == ("slept", 11)
    with shmq.rpc.Client(servers.path, timeout=LONG) as client, requests_of(servers) as queue:
        inbox = client._link.inbox
        waiter = inbox.waiting[99] = shmq.rpc.client.Waiter()
        for request, words in (([2, inbox.client, 99, "new"], "of version 2"), ([1, inbox.client, 99], "none that")):
            waiter.reply = None
            queue.put(encode(request))
            inbox.wait_for(waiter, time.monotonic() + LONG)
            problem = shmq.rpc.crossing.back(waiter.reply.body)
            assert isinstance(problem, shmq.BadFormat)
            assert words in str(problem)


@pytest.mark.parametrize(
    "kind", ["os.system", "builtins.SystemExit", "SystemExit", "KeyboardInterrupt", "x" * 5000, ""]
)
def test_an_error_in_a_reply_makes_an_exception_of_known_classes_or_none(kind):
    body = encode([kind, "text", ["true"], "trace", ["note"]])
    problem = shmq.rpc.crossing.back(body)
    assert type(problem) is shmq.rpc.RemoteError
    assert problem.__notes__ == ["note"]


@pytest.mark.parametrize(
    "body", [b"", b"\xc0", encode([1, 2, 3, 4]), encode(["ValueError", "x", None]), b"\x91" * 50000]
)
def test_what_is_no_error_is_a_bad_format(body):
    assert isinstance(shmq.rpc.crossing.back(body), shmq.BadFormat)


def test_an_error_that_cannot_be_made_is_told_in_words():
    body = encode(["UnicodeDecodeError", "text", ["too few"], ""])
    assert isinstance(shmq.rpc.crossing.back(body), shmq.rpc.RemoteError)


def test_no_reply_harms_a_client(client):
    inbox = client._link.inbox
    bad = [b"", os.urandom(99), b"\x91" * 100_000, encode([1]), encode([-1, 0, None]), encode([1, 9, None])]
    with shmq.open(f"shm:rpc-{inbox.client.hex()}") as replies:
        for record in [*bad, encode([1 << 40, 0, None])]:
            replies.put(record)
        assert client.call("add", 1, 2) == 3
        assert inbox.unreadable == len(bad)
        for body in (b"\xc1", b"\x91" * 100_000, b"\xc7\x00\x05"):
            number = next(inbox.numbers)
            inbox.numbers = iter([number, *range(number + 1, number + 100)])
            replies.put(b"\x93" + encode(number) + b"\x00" + body)
            with contextlib.suppress(shmq.BadFormat, shmq.rpc.TimedOut):
                client.call("asleep", 0.5, timeout=0.3)
        assert client.call("add", 1, 2) == 3


def test_no_cancel_harms_a_server(client):
    assert client.call("add", 1, 2) == 3  # by then it has made what it hears them in
    with shmq.open(f"{client.path}/cancels", create=False) as cancels:
        for record in (b"", os.urandom(9), encode([b"x", 1]), encode([client._link.inbox.client, 1 << 62])):
            cancels.put(record)
        for number in range(12_000):  # more than are remembered
            cancels.put(encode([client._link.inbox.client, (1 << 40) + number]))
    assert client.call("add", 1, 2) == 3
    future = client.submit("until_cancelled", "x")
    future.cancel()
    assert client.call("add", 1, 2) == 3


# ---------------------------------------------------------------- stopped
def test_a_server_that_is_stopped_holds_up_what_it_has_and_nothing_else(servers):
    one, other = servers.start(), servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        future = client.submit("sleep", 0.2, timeout=None)
        until(lambda: servers.notes() == ["slept began"])
        one.signal(signal.SIGSTOP)
        other.signal(signal.SIGSTOP)
        with pytest.raises(shmq.rpc.TimedOut):
            client.call("add", 1, timeout=0.2)
        other.signal(signal.SIGCONT)
        if not future.done():  # it was the first one's
            assert [client.call("add", number, 0) for number in range(20)] == list(range(20))
        one.signal(signal.SIGCONT)
        assert future.result(LONG) == "slept"


def test_a_client_that_is_stopped_gets_its_replies_when_it_goes_on(servers):
    """Meanwhile the server keeps what has no room, and serves others."""

    def ask(say):
        places._REPLY_BYTES = 1 << 20
        client = shmq.rpc.Client(servers.path)
        futures = [client.submit("echo", bytes(100_000)) for _ in range(30)]
        say("asked")
        say(sum(len(each.result(LONG)) for each in futures))

    with Child(ask) as child:
        child.hear()
        child.signal(signal.SIGSTOP)
        servers.start()
        with shmq.rpc.Client(servers.path, timeout=LONG) as client:
            assert client.call("add", 1, 2) == 3  # behind all of those
        child.signal(signal.SIGCONT)
        assert child.hear() == str(30 * 100_000)


def test_replies_that_are_never_taken_are_not_kept_without_end(servers, monkeypatch):
    monkeypatch.setattr("shmq.rpc.replies._OWED_MAX", 500_000)  # in the server, which is forked from here

    def ask(say):
        places._REPLY_BYTES = 1 << 20
        client = shmq.rpc.Client(servers.path)
        futures = [client.submit("echo", bytes(100_000)) for _ in range(30)]
        say("asked")
        problems = [type(each.exception(LONG)).__name__ for each in futures]
        say(f"{problems.count('NoneType') > 9} {problems.count('Full') > 9}")

    with Child(ask) as child:
        child.hear()
        child.signal(signal.SIGSTOP)
        servers.start()
        with shmq.rpc.Client(servers.path, timeout=LONG) as client:
            assert client.call("add", 1, 2) == 3
        child.signal(signal.SIGCONT)
        assert child.hear() == "True True"


def test_a_reply_that_fits_nowhere_is_an_error(servers, monkeypatch):
    monkeypatch.setattr(places, "_REPLY_BYTES", 1 << 20)
    servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        with pytest.raises(shmq.TooLarge, match=r"echo\(\) has run; what it returned is lost"):
            client.call("echo", bytes(2 << 20))
        assert client.call("add", 1, 2) == 3


def test_what_is_somebody_elses_directory_is_refused_and_left_as_it_is(tmp_path):
    """Found by an attack: 'requests' was made in a queue's own directory, which nobody could delete any more."""
    with shmq.open(tmp_path / "q"):
        for make in (shmq.rpc.Client, shmq.rpc.Server):
            with pytest.raises(shmq.BadFormat, match="there is something else"):
                make(tmp_path / "q")._link.open()
    shmq.delete(tmp_path / "q")
    (tmp_path / "calc" / "requests.making-1234").mkdir(parents=True)  # somebody is making it
    with shmq.rpc.Server(tmp_path / "calc"):
        pass


# ---------------------------------------------------------------- full
def test_where_there_is_no_room_for_requests_nothing_is_asked(tmp_path):
    with shmq.rpc.Client(tmp_path / "calc", max_messages=2, full="raise") as client:
        client.tell("noted", "x")
        client.tell("noted", "x")
        for ask in (client.call, client.tell, client.submit):
            with pytest.raises(shmq.Full):
                ask("noted", "y")
        assert client._link.inbox.waiting == {}
        assert client._link.inbox.pump.pending == {}
        with shmq.rpc.Client(tmp_path / "calc") as other, pytest.raises(shmq.Full):
            other.tell("noted", "z")


def test_a_call_waits_for_room_no_longer_than_it_has(tmp_path):
    """Found by an attack: with a bounded queue that is full, its timeout was not heard of; and a loop stood still."""
    with shmq.rpc.Client(tmp_path / "calc", max_messages=2, timeout=0.3) as client:
        client.tell("noted", "x")
        client.tell("noted", "x")
        for ask in (client.call, client.submit):
            with pytest.raises(shmq.Full):
                ask("noted", "y")

        async def asks():
            turns = 0

            async def count():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0.001)

            counting = asyncio.create_task(count())
            with pytest.raises(shmq.Full):
                await client.acall("noted", "y")
            counting.cancel()
            return turns

        assert asyncio.run(asks()) > 10
        assert client._link.inbox.waiting == {}
        assert client._link.inbox.pump.pending == {}


def test_a_call_that_waits_for_room_is_made_when_a_server_makes_some(servers):
    servers.path = f"{servers.path}-bounded"
    child = servers.start(max_messages=2)
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        child.signal(signal.SIGSTOP)
        with contextlib.suppress(shmq.Full):
            while True:
                client.submit("add", 0, 0, timeout=0.1)

        async def asks():
            call = asyncio.create_task(client.acall("add", 1, 2))
            await asyncio.sleep(0.05)
            child.signal(signal.SIGCONT)
            return await call

        assert asyncio.run(asks()) == 3


@pytest.mark.disk
def test_with_sync_all_ways_to_call_are_answered_however_short_their_time(tmp_path):
    """Found on re-reading: what waits for room no longer than it has does not wait for the disk, and was refused."""
    with shmq.rpc.Server(tmp_path / "calc", durability="sync") as server:
        server.method(lambda a, b: a + b, name="add")
        thread = threading.Thread(target=server.serve)
        thread.start()
        with shmq.rpc.Client(tmp_path / "calc", timeout=LONG) as client:

            async def asks():
                return [await client.acall("add", 1, each) for each in range(10)]

            assert asyncio.run(asks()) == list(range(1, 11))
            assert client.call("add", 1, 2) == client.submit("add", 1, 2).result(LONG) == 3
            for _ in range(20):
                with contextlib.suppress(shmq.rpc.TimedOut):
                    assert client.call("add", 1, 2, timeout=0.0005) == 3
        server.shutdown()
        thread.join(LONG)


def test_a_full_memory_is_told_and_over_when_there_is_room():
    code = """
import os, threading, shmq.rpc
server = shmq.rpc.Server("shm:calc")
server.method(lambda thing: thing, name="echo")
thread = threading.Thread(target=server.serve, daemon=True)
thread.start()
client = shmq.rpc.Client("shm:calc", timeout=30)
print(client.call("echo", 1))
fill = os.open("/dev/shm/fill", os.O_CREAT | os.O_WRONLY)
try:
    while True:
        os.write(fill, bytes(4096))
except OSError:
    pass
try:
    while True:
        client.call("echo", bytes(10_000))
except shmq.DiskFull:
    print("full")
try:
    shmq.rpc.Client("shm:other")
except shmq.DiskFull:
    print("full")
os.unlink("/dev/shm/fill")
os.close(fill)
print(client.call("echo", 2))
client.close()
server.shutdown()
thread.join(30)
server.close()
"""
    assert in_tiny(code, "6m").split() == ["1", "full", "full", "2"]


def test_replies_that_find_the_memory_full_come_when_there_is_room():
    """Each once, and nobody is told that its call failed; meanwhile nothing else stands still."""
    code = """
import os, threading, shmq.rpc
server = shmq.rpc.Server("calc")
ran = []
server.method(lambda size: (ran.append(size), bytes(size))[1], name="make")
thread = threading.Thread(target=server.serve, daemon=True)
thread.start()
client = shmq.rpc.Client("calc", timeout=60)
print(len(client.call("make", 10)))
fill = os.open("/dev/shm/fill", os.O_CREAT | os.O_WRONLY)
try:
    while True:
        os.write(fill, bytes(4096))
except OSError:
    pass
sizes = [700_000 + number for number in range(3)]
futures = [client.submit("make", size) for size in sizes]
while len(ran) < 4:
    pass
print([future.done() for future in futures])
os.unlink("/dev/shm/fill")
os.close(fill)
print([len(future.result(60)) for future in futures] == sizes == ran[1:])
client.close()
server.shutdown()
thread.join(30)
server.close()
"""
    with tempfile.TemporaryDirectory() as folder:
        code = f"import os; os.chdir({folder!r})\n{code}"
        assert in_tiny(code, "6m").split("\n")[:3] == ["10", "[False, False, False]", "True"]


def test_a_full_disk_refuses_requests_whole_and_is_over_when_there_is_room(tmp_path):
    """What was taken is done, once; what was refused is not."""
    with disks.in_memory(tmp_path, 3 << 20) as disk:
        ran: list[int] = []
        began, gate = threading.Event(), threading.Event()

        def note(number: int, data: bytes) -> None:  # it takes room
            began.set()
            gate.wait(LONG)
            ran.append(number)

        with shmq.rpc.Client(disk / "calc", timeout=60) as client, shmq.rpc.Server(disk / "calc") as server:
            server.method(note)
            thread = threading.Thread(target=server.serve)
            thread.start()
            client.tell("note", 0, b"")
            assert began.wait(LONG)  # to begin takes room
            (disk / "fill").write_bytes(bytes(1 << 20))
            taken = [0]

            def tell() -> None:
                while True:
                    client.tell("note", len(taken), bytes(20_000))
                    taken.append(len(taken))

            with pytest.raises(shmq.DiskFull, match="requests"):
                tell()
            with pytest.raises(shmq.DiskFull, match="requests"):
                client.call("note", -1, bytes(20_000))
            gate.set()
            until(lambda: len(ran) == len(taken))  # what is there is served on a full disk
            (disk / "fill").unlink()
            client.call("note", 1000, bytes(20_000))
            server.shutdown()
            thread.join()
        assert ran == [*taken, 1000]
        assert len(taken) > 1


# ---------------------------------------------------------------- other users, descriptors
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_kept_out(servers):
    def ask():
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            shmq.rpc.Client(servers.path)
        except (OSError, shmq.ShmqError) as problem:
            return f"{type(problem).__name__} {problem}"
        return "came in"

    os.chmod(servers.path, 0o755)
    answer = in_child(ask)
    assert answer.split()[0] in {"PermissionError", "Unsafe", "NotFound"}
    assert servers.path in answer or "/tmp" in answer


def test_more_clients_than_descriptors(servers):
    def serve(say):
        resource.setrlimit(resource.RLIMIT_NOFILE, (160, 4096))
        server = with_methods(shmq.rpc.Server(servers.path), servers.note)
        say("serves")
        server.serve()

    with Child(serve) as child, contextlib.ExitStack() as stack:
        child.hear()
        clients = [stack.enter_context(shmq.rpc.Client(servers.path, timeout=LONG)) for _ in range(12)]
        for number in range(5):
            assert [each.call("add", number, 0) for each in clients] == [number] * 12


# ---------------------------------------------------------------- exits
@pytest.mark.parametrize(
    "last",
    [
        "client.submit('asleep', 30)",
        "threading.Thread(target=client.call, args=('asleep', 30), daemon=True).start(); time.sleep(0.2)",
        "stream = client.call('endless', 'x'); next(stream)",
        (
            "loop = asyncio.new_event_loop(); loop.create_task(client.acall('asleep', 30)); "
            "loop.call_soon(loop.stop); loop.run_forever(); loop.close()"
        ),
        (
            "server = shmq.rpc.Server(sys.argv[1]); threading.Thread(target=server.serve, daemon=True).start(); "
            "time.sleep(0.3)"
        ),
        "client.tell('noted', 'x'); os._exit(0)",
    ],
)  # fmt: skip
def test_an_interpreter_may_end_in_the_middle(client, last):
    code = (
        "import asyncio, os, sys, threading, time, warnings, shmq.rpc; warnings.simplefilter('ignore'); "
        f"client = shmq.rpc.Client(sys.argv[1]); print(client.call('add', 1, 2), flush=True); {last}"
    )
    assert run_python(code, client.path) == "3\n"
    assert client.call("add", 1, 2, timeout=60) == 3


# ---------------------------------------------------------------- Ctrl-C at every place
@pytest.fixture
def ours(monkeypatch):
    """Places in this package; what it calls is tried at all of its own by other tests."""
    monkeypatch.setattr("interrupts.OURS", f"{interrupts.OURS}rpc{os.sep}")


@pytest.mark.usefixtures("ours")
def test_a_call_may_be_interrupted_at_any_place(client):
    """And goes on as if nothing had been."""
    rounds = 0
    for this in interruptions():
        with this.interrupted():
            assert client.call("add", 1, 2) == 3
        rounds += 1
        assert client._link.inbox.waiting == {}, this.at
        assert client.call("add", 2, 2) == 4, this.at
    assert rounds > 20


@pytest.mark.usefixtures("ours")
def test_an_interrupted_call_loses_no_reply_of_another_thread(client):
    stop, problems, count = threading.Event(), [], [0]

    def others():
        try:
            while not stop.is_set():
                assert client.call("add", count[0], 0, timeout=LONG) == count[0]
                count[0] += 1
        except BaseException as problem:  # noqa: BLE001  # told below
            problems.append(problem)

    thread = threading.Thread(target=others)
    thread.start()
    for this in interruptions():
        with this.interrupted():
            client.call("add", 1, 2)
    stop.set()
    thread.join(LONG)
    assert problems == []
    assert count[0] > 0


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize("verb", ["submit", "tell", "stream"])
def test_so_may_the_others(client, verb):
    for this in interruptions():
        with this.interrupted():
            if verb == "submit":
                assert client.submit("add", 1, 2).result(LONG) == 3
            elif verb == "tell":
                client.tell("add", 1, 2)
            else:
                assert list(client.call("count", 2)) == [0, 1]
        if not this.raised or this.seen % 7 == 0:
            assert client.call("add", 2, 2) == 4, this.at
    pump = client._link.inbox.pump
    until(lambda: pump.pending == {})
    assert client._link.inbox.waiting == {}


# ---------------------------------------------------------------- a codec that fails
class Sour:
    """It can be pickled, and not unpickled."""

    def __reduce__(self):
        return pickle.loads, (b"garbage",)


class Fails:
    """It cannot be pickled."""

    def __reduce__(self):
        raise RuntimeError("not this one")


def test_a_codec_that_fails_harms_its_own_call_alone(servers):
    servers.start(trusted=True)
    with shmq.rpc.Client(servers.path, trusted=True, timeout=LONG) as client:
        with pytest.raises(RuntimeError, match="not this one"):
            client.call("echo", Fails())
        with pytest.raises(shmq.rpc.WrongArguments, match="was not called"):
            client.call("echo", Sour())
        assert client.call("add", 1, 2) == 3


def test_a_task_in_another_loop_is_as_good(client):
    assert [asyncio.run(client.acall("add", number, 0)) for number in range(3)] == [0, 1, 2]


def test_servers_that_nobody_needs_use_no_processor(servers):
    child = servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        client.call("add", 1)
        before = used(child.pid)
        time.sleep(2)
        assert used(child.pid) - before < 0.2


def used(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_place_that_is_removed_is_missed(tmp_path):
    import shutil

    servers = Servers(tmp_path / "calc", tmp_path / "notes")
    try:
        servers.start()
        with shmq.rpc.Client(servers.path, timeout=LONG) as client:
            assert client.call("add", 1, 2) == 3
            shutil.rmtree(servers.path)
            assert client.call("add", 1, 2) == 3  # who has it open goes on
            assert wire.VERSION == 1
    finally:
        servers.kill()

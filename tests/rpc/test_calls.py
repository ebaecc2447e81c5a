"""Calls: what comes back, which types cross, which errors do, and who is asked."""

from __future__ import annotations

import datetime
import functools
import glob
import multiprocessing
import os
import signal
import threading
import time

import pytest
from servers import Point, Servers, Sorrow, with_methods
from support import Child, until

import shmq.rpc

LONG = 20


# ---------------------------------------------------------------- what comes back
def test_a_call_returns_what_the_method_returns(place, tmp_path):
    with shmq.rpc.Client(place, timeout=LONG) as client:
        servers = Servers(place, tmp_path / "notes")
        try:
            servers.start()
            assert client.call("add", 1, 2) == 3
            assert client.call("add", 1) == 11
            assert client.call("add", 1, b=5) == 6
            assert client.call("add", a=1, b=5) == 6
            assert client.call("anything", 1, "x", None, one=2, two=[3]) == [[1, "x", None], 2, {"two": [3]}]
            assert client.call("anything") == [[], 1, {}]
            assert client.call("named", 1, b="x") == [1, "x"]
        finally:
            servers.kill()


def test_names_with_dots_are_written_as_attributes(client):
    assert client.add(1, 2) == 3
    assert client.deep.er.add(1, 2) == 1003
    assert client.calc.add(1, 2, timeout=LONG) == 3  # the server's own name, which need not be there
    assert client.calc.deep.er.add(1, b=2) == 1003
    with pytest.raises(AttributeError):
        client._add  # noqa: B018
    with pytest.raises(AttributeError):
        client.calc.__add__  # noqa: B018
    assert "deep.er" in repr(client.deep.er)


def test_a_request_waits_for_a_server_to_come(servers):
    found = []
    with shmq.rpc.Client(servers.path) as client:
        thread = threading.Thread(target=lambda: found.append(client.call("add", 1, 2)))
        thread.start()
        until(lambda: shmq.open(f"{servers.path}/requests").next_index == 1)
        servers.start()
        thread.join(LONG)
    assert found == [3]


# ---------------------------------------------------------------- types
def test_what_annotations_name_arrives_as_that(client):
    when = datetime.datetime(1999, 5, 5, tzinfo=datetime.UTC)
    assert client.call("move", Point(1, 2), 3) == {"x": 4, "y": 0}
    assert client.call("move", {"x": 1}, 3.0, when) == {"x": 4, "y": 1999}


@pytest.mark.parametrize(
    ("method", "arguments", "named", "words"),
    [
        ("add", ("x", 1), {}, "a: Expected `int`, got `str`"),
        ("add", (), {}, "missing a required argument: .a."),
        ("add", (1, 2, 3), {}, "too many positional"),
        ("add", (1,), {"b": "x"}, "Expected `int`, got `str`"),
        ("add", (1, 2), {"b": 2}, "multiple values"),
        ("add", (1,), {"c": 2}, "unexpected keyword"),
        ("named", (1,), {}, "missing a required"),
        ("named", (1, "x"), {}, "too many positional"),
        ("move", ({"y": 1}, 1.0), {}, "missing required field `x`"),
        ("move", ({"x": 1}, 1.0, "when"), {}, "Invalid RFC3339"),
    ],
)
def test_other_arguments_are_refused_before_anything_runs(client, method, arguments, named, words):
    with pytest.raises(shmq.rpc.WrongArguments, match=words) as caught:
        client.call(method, *arguments, **named)
    assert isinstance(caught.value, TypeError)
    assert method in str(caught.value)
    assert "was not called" in str(caught.value)


@pytest.mark.parametrize(
    "thing", [None, True, 0, -(1 << 63), (1 << 64) - 1, 1.5, "", "ü" * 9, b"\x00\xff", [1, [2]], {"a": b"b"}]
)
def test_what_msgpack_has_comes_back_as_it_was(client, thing):
    assert client.call("echo", thing) == thing


def test_a_large_one_crosses(client):
    large = os.urandom(5 << 20)
    assert client.call("echo", large) == large


def test_what_cannot_cross_is_told_where_it_is(client):
    with pytest.raises(TypeError, match=r"a builtins\.object cannot cross"):
        client.call("echo", object())
    with pytest.raises(TypeError, match=r"unsendable\(\) has run; what it returned cannot cross: a builtins.object"):
        client.call("unsendable")
    assert client.call("add", 1, 2) == 3


def test_pickles_are_read_where_both_sides_say_so(servers):
    servers.start(trusted=True)
    with shmq.rpc.Client(servers.path, trusted=True, timeout=LONG) as client:
        assert client.call("echo", 1j) == 1j
        assert client.call("echo", [functools.partial(int, "7")])[0]() == 7


@pytest.mark.parametrize("trusts", ["client", "server", "nobody"])
def test_no_pickle_is_read_where_one_side_does_not(servers, trusts):
    servers.start(trusted=trusts == "server")
    with shmq.rpc.Client(servers.path, trusted=trusts == "client", timeout=LONG) as client:
        if trusts == "client":
            with pytest.raises(shmq.Untrusted, match="both sides"):
                client.call("echo", 1j)
        else:
            with pytest.raises(TypeError, match="cannot cross"):
                client.call("echo", 1j)
            problem = shmq.Untrusted if trusts == "server" else TypeError
            with pytest.raises(problem):
                client.call("unsendable")


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("which", "kind", "arguments"),
    [
        ("value", ValueError, ("no", 7)),
        ("key", KeyError, ("k",)),
        ("os", FileNotFoundError, (2, "No such file")),
        ("sorrow", Sorrow, ("so", 1)),
        ("unicode", UnicodeDecodeError, ("utf-8", b"\xff", 0, 1, "bad")),
        ("empty", shmq.Empty, ("nothing here",)),
        ("time", TimeoutError, ("mine",)),
    ],
)
def test_an_error_that_both_sides_know_is_raised_as_itself(client, which, kind, arguments):
    with pytest.raises(kind) as caught:
        client.call("fail", which)
    assert type(caught.value) is kind
    assert caught.value.args == arguments
    assert "raise PROBLEMS[which]" in str(caught.value.__cause__)
    assert "servers.py" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("which", "kind", "words"),
    [
        ("grief", "servers.Grief", "so"),
        ("mute", "servers.Mute", "its __str__ raises"),
        ("stop", "StopIteration", "3"),
        ("exit", "SystemExit", "3"),
        ("object", "ValueError", "<object object"),
    ],
)
def test_any_other_error_says_what_it_was(client, which, kind, words):
    with pytest.raises(shmq.rpc.RemoteError) as caught:
        client.call("fail", which)
    assert caught.value.kind == kind
    assert words in caught.value.text
    assert str(caught.value) == f"{kind}: {caught.value.text}"
    assert "PROBLEMS" in caught.value.traceback
    assert client.call("add", 1, 2) == 3  # whatever was raised, it serves on


def test_a_method_that_nobody_serves_is_named(client):
    with pytest.raises(shmq.rpc.NoSuchMethod, match=r"no method 'sub'; there are: aadd, acount, add, "):
        client.call("sub", 1)
    with pytest.raises(shmq.rpc.NoSuchMethod):
        client.other.add(1)


def test_only_classes_of_exceptions_are_registered():
    with pytest.raises(TypeError):
        shmq.rpc.register_error(int)
    with pytest.raises(TypeError):
        shmq.rpc.register_error(KeyboardInterrupt)


# ---------------------------------------------------------------- deadlines
@pytest.mark.parametrize(
    ("timeout", "problem"), [("1", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)]
)
def test_a_timeout_is_a_number_of_seconds(client, timeout, problem):
    with pytest.raises(problem):
        client.call("add", 1, timeout=timeout)
    with pytest.raises(problem):
        shmq.rpc.Client(client.path, timeout=timeout)


def test_when_the_time_is_up_the_caller_is_told(servers):
    with shmq.rpc.Client(servers.path, timeout=0.05) as client:
        with pytest.raises(shmq.rpc.TimedOut, match="may have run") as caught:
            client.call("add", 1)
        assert isinstance(caught.value, TimeoutError)


def test_a_late_request_is_not_worked_on(servers):
    with shmq.rpc.Client(servers.path) as client:
        with pytest.raises(shmq.rpc.TimedOut):
            client.call("noted", "late", timeout=0.01)
        servers.start()
        assert client.call("noted", "in time", timeout=LONG) == "in time"
    assert servers.notes() == ["in time"]


def test_nor_one_of_an_earlier_boot_that_had_a_deadline(servers, monkeypatch):
    from shmq.rpc import deadlines

    with monkeypatch.context() as before:
        before.setattr(deadlines, "BOOT", b"then")
        with shmq.rpc.Client(servers.path) as client, pytest.raises(shmq.rpc.TimedOut):
            client.call("noted", "then", timeout=0.01)
        queue = shmq.open(f"{servers.path}/requests")
        (request,) = [message.payload for message in queue.reader()]
        from shmq.rpc import wire

        asked = wire.read_request(request)
        queue.put(wire.pack((1, asked.client, 7, "noted", 0, 1 << 62, ["then, with time left"])))
        queue.put(wire.pack((1, asked.client, 8, "noted", 0, 0, ["then, without a deadline"])))
    servers.start()
    with shmq.rpc.Client(servers.path) as client:
        client.call("noted", "now", timeout=LONG)
    assert servers.notes() == ["then, without a deadline", "now"]


def test_a_method_knows_how_much_time_there_is(client):
    assert 15 < client.call("seconds_left") <= 20
    assert 2 < client.call("seconds_left", timeout=4) <= 4
    with shmq.rpc.Client(client.path) as unhurried:
        assert unhurried.call("seconds_left") is None


def test_a_call_in_a_method_has_no_more_time_than_the_method(servers, tmp_path):
    """Three processes: what the second one asks the third has the first one's deadline."""

    def serve(say):
        server = shmq.rpc.Server(tmp_path / "middle")
        inner = shmq.rpc.Client(servers.path)

        @server.method
        def ask(timeout: float | None):
            return inner.call("seconds_left", timeout=timeout)

        say("serves")
        server.serve()

    servers.start()
    with Child(serve) as child, shmq.rpc.Client(tmp_path / "middle") as client:
        child.hear()
        assert 5 < client.call("ask", None, timeout=10) <= 10
        assert 5 < client.call("ask", 60, timeout=10) <= 10
        assert 1 < client.call("ask", 3, timeout=10) <= 3
        assert client.call("ask", None) is None
        assert 50 < client.call("ask", 60) <= 60


# ---------------------------------------------------------------- several servers
def test_servers_share_what_is_asked(servers):
    servers.start(3)
    found = set()

    def ask():
        with shmq.rpc.Client(servers.path, timeout=LONG) as client:
            while len(found) < 3:
                client.call("sleep", 0.01)
                found.add(client.call("pid"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert found == {child.pid for child in servers.children}


def test_a_server_is_made_once_and_serves_in_several_children(servers):
    """As those do that load a lot before they fork."""
    server = with_methods(shmq.rpc.Server(servers.path), servers.note)

    def serve(say):
        say("serves")
        server.serve()

    with Child(serve) as one, Child(serve) as other, shmq.rpc.Client(servers.path, timeout=LONG) as client:
        one.hear(), other.hear()
        found = set()
        while len(found) < 2:
            futures = [client.submit("sleep", 0.05), client.submit("sleep", 0.05), client.submit("pid")]
            found.add(futures[2].result(LONG))
            found.add(client.call("pid"))
        assert found == {one.pid, other.pid}
    server.close()


def test_a_server_has_several_threads(servers):
    servers.start(threads=4)
    begin = threading.Barrier(5)

    def ask():
        with shmq.rpc.Client(servers.path, timeout=LONG) as client:
            begin.wait()
            client.call("sleep", 0.5)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    begin.wait()
    until(lambda: servers.notes().count("slept began") == 4)
    assert servers.notes().count("slept") == 0  # all of them run
    for thread in threads:
        thread.join(LONG)


def test_what_a_server_died_with_is_answered_and_not_run_again(servers):
    servers.start(2)
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        with pytest.raises(shmq.rpc.ServerDied, match=r"that had die\(\) died; it may have run"):
            client.call("die")
        assert servers.notes() == ["died"]
        assert client.call("add", 1, 2) == 3


def test_a_server_stops_where_it_is_told_to(servers):
    child = servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        assert client.call("stop") == "stops"
        assert child.hear() == "over"
        assert child.join() == 0
        other = servers.start()
        assert client.call("add", 1, 2) == 3
        other.signal(signal.SIGTERM)
        assert other.hear() == "over"
        shmq.open(f"{servers.path}/requests").shutdown()
        with pytest.raises(shmq.ShutDown):
            client.call("add", 1)


def test_ctrl_c_ends_a_server_and_tells_whoever_waits(servers):
    child = servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        threading.Timer(
            0, lambda: (until(lambda: servers.notes() == ["slept began"]), child.signal(signal.SIGINT))
        ).start()
        with pytest.raises(shmq.rpc.ServerDied, match="interrupted"):
            client.call("sleep", LONG)
        assert child.hear() == "over"


def test_methods_are_functions_with_names_of_their_own(calc):
    with shmq.rpc.Server(calc) as server:

        @server.method
        def one():
            pass

        assert one() is None
        with pytest.raises(ValueError, match="already"):
            server.method(one)
        with pytest.raises(ValueError, match="1 to 200"):
            server.method(one, name="")
        with pytest.raises(TypeError, match="a function is wanted"):
            server.method(7)

        def lost(a: "Nowhere"):  # noqa: F821, UP037
            pass

        with pytest.raises(TypeError, match="annotations cannot be resolved"):
            server.method(lost)
        assert repr(server) == f"<shmq.rpc.Server {calc} (serves one)>"


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"threads": 1.0}, {"max_attempts": 0}, {"threads": True}])
def test_options_that_mean_nothing_are_refused(calc, wrong):
    with pytest.raises(ValueError, match="from 1 on"):
        shmq.rpc.Server(calc, **wrong)


@pytest.mark.parametrize("wrong", [b"calc", 7, None])
def test_a_path_is_text(wrong):
    with pytest.raises(TypeError):
        shmq.rpc.Client(wrong)


def test_where_the_directory_above_is_missing_nothing_is_made(tmp_path):
    with pytest.raises(shmq.NotFound):
        shmq.rpc.Client(tmp_path / "no" / "calc")
    with pytest.raises(shmq.NotFound):
        shmq.rpc.Client(tmp_path / "calc", create=False)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- a reply path per client
def replies_of(client):
    """What lies in shared memory for that client."""
    return glob.glob(f"/dev/shm/shmq-{os.getuid()}/rpc-{client.hex()}*")


def test_the_replies_of_a_client_go_with_it(servers):
    servers.start()
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        client.call("add", 1)
        name = client._link.inbox.client
        assert replies_of(name)
    until(lambda: not replies_of(name))


def test_also_when_it_is_killed(servers):
    def call(say):
        with shmq.rpc.Client(servers.path, timeout=LONG) as client:
            client.call("add", 1, 2)
            say(client._link.inbox.client.hex())
            time.sleep(LONG)

    servers.start()
    with Child(call) as child:
        name = bytes.fromhex(child.hear())
        assert replies_of(name)
        child.kill()
    until(lambda: not replies_of(name))


def test_also_when_it_is_killed_before_any_server_knew_of_it(servers):
    def ask(say):
        client = shmq.rpc.Client(servers.path)
        say(client._link.inbox.client.hex())
        time.sleep(LONG)

    with Child(ask) as child:
        name = bytes.fromhex(child.hear())
        child.kill()
    assert replies_of(name)
    servers.start()
    until(lambda: not replies_of(name))


def test_a_client_reads_no_replies_but_its_own(servers):
    servers.start(2)
    with shmq.rpc.Client(servers.path, timeout=LONG) as one, shmq.rpc.Client(servers.path, timeout=LONG) as other:
        for number in range(50):
            assert one.call("add", number, 1) == number + 1
            assert other.call("add", number, 2) == number + 2
        for client in (one, other):
            inbox = client._link.inbox
            assert inbox._replies.next_index == 50
            assert inbox.waiting == {}


# ---------------------------------------------------------------- threads, forks, pickles
def test_threads_share_a_client(client):
    found = {}

    def ask(who):
        found[who] = [client.call("add", who, number) for number in range(100)]

    threads = [threading.Thread(target=ask, args=(1000 * who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {1000 * who: [1000 * who + number for number in range(100)] for who in range(8)}
    assert client._link.inbox.waiting == {}


def test_a_slow_call_of_one_thread_does_not_hold_up_another(servers):
    """Whoever leads goes on for itself; the others are handed theirs."""
    servers.start(2)
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        slow = threading.Thread(target=client.call, args=("sleep", 1.5))
        slow.start()
        until(lambda: servers.notes() == ["slept began"])
        assert [client.call("add", number, 0) for number in range(20)] == list(range(20))
        assert slow.is_alive()
        slow.join(LONG)


def test_a_forked_child_has_replies_of_its_own(client):
    def ask(say):
        say([client.call("add", number, 0) for number in range(20)])

    assert client.call("add", 1, 2) == 3
    with Child(ask) as one, Child(ask) as other:
        assert [client.call("add", number, 1) for number in range(20)] == list(range(1, 21))
        for child in (one, other):
            assert child.hear() == str(list(range(20)))


def test_a_child_that_was_forked_in_the_middle_of_a_call_can_call(servers):
    servers.start(2)
    with shmq.rpc.Client(servers.path, timeout=LONG) as client:
        thread = threading.Thread(target=client.call, args=("sleep", 1))
        thread.start()
        until(lambda: servers.notes() == ["slept began"])
        with Child(lambda say: say(client.call("add", 1, 2))) as child:
            assert child.hear() == "3"
        thread.join(LONG)


def ask_there(client, pipe):
    pipe.send(client.call("add", 1, 2))


def test_it_crosses_to_a_process_that_is_spawned(client):
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=ask_there, args=(client, theirs))
    process.start()
    assert ours.poll(LONG * 2)
    assert ours.recv() == 3
    process.join(LONG)


def test_a_server_does_not_pickle(calc):
    import pickle

    with shmq.rpc.Server(calc) as server, pytest.raises(TypeError, match="make a Server of the same path"):
        pickle.dumps(server)


def test_who_waits_is_told_that_the_client_was_closed(servers):
    found = []
    client = shmq.rpc.Client(servers.path)

    def ask():
        try:
            client.call("add", 1)
        except shmq.Closed as problem:
            found.append(str(problem))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(client._link.inbox.waiting) == 3)
    client.close()
    client.close()
    for thread in threads:
        thread.join(LONG)
    assert len(found) == 3
    with pytest.raises(shmq.Closed):
        client.call("add", 1)
    assert "closed" in repr(client)

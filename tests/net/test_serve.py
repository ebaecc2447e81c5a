"""`shmq serve` as a process: where it listens, whom it lets in, what it bears, and how it ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import struct
import tempfile
import threading
import time

import pytest
from peers import META, PROJECT, Forked, Peer, Server, call, document, frame, refusal
from support import Child, run_python

import shmq
from shmq import net
from shmq.net import addresses, connection
from shmq.net import server as server_module
from shmq.net.limits import Limits


@pytest.fixture
def served(root, orders):
    """A server of that root, at a TCP port and the default socket."""
    with Forked(root, "tcp:127.0.0.1:0", f"unix:{root}/.serve/socket") as server:
        yield server


# ---------------------------------------------------------------- both kinds of sockets
def test_it_is_reached_by_tcp_and_by_a_socket_that_is_its_owners_alone(root, orders, served):
    for place in (served.port, served.path):
        with Peer(place) as peer:
            cid = peer.create("createAppender", "orders")["cid"]
            assert "index" in peer.ask(f"cid: {cid}", "submit: { a: 1 }")
    assert [each.headers for each in orders.reader()] == [{"w": "b"}] * 2
    assert stat.S_IMODE(os.stat(served.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(root / ".serve").st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_not_let_in_even_where_the_socket_would(root):
    def ask(say, path):
        document(b"a: b")  # what it takes is imported, which another user may not
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        with Peer(path) as peer:
            say(peer.is_left())

    with tempfile.TemporaryDirectory(dir="/tmp") as place, Forked(root, f"unix:{place}/s") as server:
        os.chmod(place, 0o711)
        os.chmod(server.path, 0o666)
        with Child(ask, server.path) as other:
            assert other.hear() == "this socket is for its owner alone"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_what_waits_is_answered(root, orders, number):
    words = ["--listen", "tcp:127.0.0.1:0", "--listen", f"unix:{root}/.serve/socket"]
    with Server(root, *words) as served, Peer(served.path) as peer, Peer(served.port) as idle:
        assert served.said == f"shmq: serving {root} at {' '.join(served.places)}\n"
        cid = peer.create("createTailer", "orders")["cid"]
        idle.create("createTailer", "orders")
        peer.send(call(f"cid: {cid}\ntid: 1", "hasNext: { timeout: 60000 }") + call(f"cid: {cid}\ntid: 2", "x: { }"))
        with Peer(served.path) as other:
            other.create("createTailer", "orders")  # so the first request was taken
        said = served.end(number)
        assert said == ""
        assert served.process.returncode == 0
        assert peer.reply() == (1, {"index": 0, "reply": []})
        assert refusal(peer.reply()[1])[0] == "IllegalArgument"
        assert peer.is_left() == idle.is_left() == "the server ends"
    assert not os.path.exists(served.path)


def test_a_root_has_one_server_and_a_killed_one_is_in_nobodys_way(root, orders, served):
    with pytest.raises(shmq.Busy, match="another process does"):
        net.serve(root)
    other = root.parent / "other"
    other.mkdir(0o700)
    with pytest.raises(shmq.Busy, match="somebody does already"):
        net.serve(other, f"unix:{served.path}")
    served.end(signal.SIGKILL)
    with Forked(root) as again, Peer(again.path) as peer:
        assert again.path == served.path
        assert peer.create("createTailer", "orders")["end"] == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["tcp:0.0.0.0:0"], shmq.Unsafe),
        (["tcp:[::]:0"], shmq.Unsafe),
        (["tcp:127.0.0.1"], ValueError),
        (["tcp:127.0.0.1:99999"], ValueError),
        (["http:127.0.0.1:80"], ValueError),
        (["unix:"], ValueError),
        (["unix:{root}/orders/queue.shmq"], shmq.Unsafe),
    ],
)
def test_it_listens_nowhere_that_it_should_not(root, orders, words, error):
    with pytest.raises(error):
        net.serve(root, [each.format(root=root) for each in words])
    orders.put(b"still whole")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_where_somebody_listens_is_named(root, host):
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        with pytest.raises(shmq.Busy, match=f"^cannot listen at tcp:{host}:{port}: somebody does already$"):
            net.serve(root, f"tcp:{host}:{port}")
    with pytest.raises(OSError, match=r"cannot listen at tcp:no\.host\.invalid:9: "):
        net.serve(root, "tcp:no.host.invalid:9")


def test_a_root_that_others_can_write_to_or_that_is_not_there_is_refused(root):
    root.chmod(0o770)
    with pytest.raises(shmq.Unsafe):
        net.serve(root)
    with pytest.raises(shmq.NotFound):
        net.serve(root / "missing")
    with pytest.raises(ValueError, match="a certificate"):
        net.serve(root, key="key.pem")


def test_addresses_are_read_and_shown():
    assert addresses.parse("tcp:[::1]:9000") == addresses.Tcp("::1", 9000)
    assert addresses.parse("tcp:localhost:0") == addresses.Tcp("localhost", 0)
    (listening,) = addresses.bound(addresses.Tcp("127.0.0.1", 0), everywhere=False)
    with listening:
        assert (
            addresses.shown(addresses.Tcp("127.0.0.1", 0), listening) == f"tcp:127.0.0.1:{listening.getsockname()[1]}"
        )


# ---------------------------------------------------------------- greetings
def test_a_greeting_chooses_a_wire_and_is_no_duty(served):
    with Peer(served.path) as peer:
        peer.send(frame("userid: me") + frame("header: { wire-formats: [ Strange, Binary, Text ] }"))
        assert peer.frame() == (0, {"header-reply": {"wire-format": "Binary"}})
        peer.send(frame(b"\xb9\x03csp\xf4//host/orders#Queue ".replace(b"\xf4", b"\xf5"), META))
        assert peer.create("createTailer", "orders")["end"] == 0
    with Peer(served.path) as peer:
        peer.send(frame("header: { }"))
        assert peer.frame() == (0, {"header-reply": {"wire-format": "Text"}})


class Echo:
    """A session of another wire."""

    def __init__(self, service, peer, send) -> None:
        self.send = send

    def received(self, each) -> None:
        self.send(frame(each.body[::-1]))

    async def closed(self) -> None:
        """Nothing is held."""


def test_a_greeting_hands_the_connection_over_to_another_wires_session(root, orders, monkeypatch):
    """Which is how our own client's wire is spoken on the same port."""
    monkeypatch.setitem(connection._SESSIONS, "Shmq1", Echo)
    with Forked(root) as server, Peer(server.path) as peer:
        peer.send(frame("header: { wire-formats: [ Shmq1, Binary, Text ] }") + frame("olleh :redaeh"))
        assert peer.frame() == (0, {"header-reply": {"wire-format": "Shmq1"}})
        assert peer.frame() == (0, {"header": "hello"})


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_it_runs_in_either_loop(root, orders, monkeypatch, loop):
    if loop == "asyncio":
        monkeypatch.setattr(server_module, "uvloop", None)
    else:
        pytest.importorskip("uvloop")
    with (
        Forked(root, f"unix:{root}/s", "tcp:127.0.0.1:0") as server,
        Peer(server.path) as one,
        Peer(server.port) as two,
    ):
        assert one.ask("csp: //host/orders#appender", "submit: a") == {"index": 0}
        two.send(call("csp: //host/orders#tailer\ntid: 1", "hasNext: { index: 1, timeout: 20000 }"))
        assert one.ask("csp: //host/orders#appender", "submit: b") == {"index": 1}
        assert two.reply() == (1, {"index": 1, "reply": ["b"]})
        assert server.end(signal.SIGINT) == 0
        assert one.is_left() == two.is_left() == "the server ends"


def test_the_pages_script_talks_to_it(root, orders):
    """The ten lines of docs/how-to/serve.md, as they stand there."""
    script = (PROJECT / "docs" / "how-to" / "serve.md").read_text().split("```python\n")[1].split("```")[0]
    with Forked(root, "tcp:127.0.0.1:0") as server:
        run_python(script.replace("9000", str(server.port)))
    assert orders[0].headers == {"w": "b"}


# ---------------------------------------------------------------- limits
def test_what_is_no_frame_ends_the_connection_and_no_other(root, orders, served):
    with Peer(served.path) as good:
        cid = good.create("createAppender", "orders")["cid"]
        for bad, why in (
            (bytes(4), "a frame without a body that is not meta-data"),
            (struct.pack("<I", (16 << 20) + 1), f"a frame of {(16 << 20) + 1} bytes; {16 << 20} are the most"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "a frame of 541676112 bytes; 16777216 are the most"),
        ):
            with Peer(served.port) as peer:
                peer.send(bad)
                assert peer.is_left() == why
        assert good.ask(f"cid: {cid}", "submit: a") == {"index": 0}


def test_silence_ends_a_connection(root, orders):
    with Forked(root, limits=Limits(hello=0.1, half=0.1, idle=0.1)) as server:
        with Peer(server.path) as peer:
            assert peer.is_left() == "nothing came in time"
        with Peer(server.path) as peer:
            peer.create("createTailer", "orders")
            peer.send(b"\5\0")
            assert peer.is_left() == "the rest of a frame did not come in time"
        with Peer(server.path) as peer:
            cid = peer.create("createTailer", "orders")["cid"]
            peer.send(call(f"cid: {cid}\ntid: 1", "hasNext: { timeout: 1200 }"))  # which is no silence
            assert peer.reply() == (1, {"index": 0, "reply": []})
            assert peer.is_left() == "nothing came for a long time"


def test_only_so_many_are_connected_at_a_time(root, orders):
    with Forked(root, limits=Limits(peers=2)) as server, Peer(server.path) as one, Peer(server.path) as two:
        one.create("createTailer", "orders")
        two.create("createTailer", "orders")
        with Peer(server.path) as three:
            assert three.is_left() == "too many are connected"
        one.close()
        deadline = time.monotonic() + 20
        while True:
            with Peer(server.path) as three:
                three.send(frame("header: { }"))
                if "header-reply" in three.frame()[1]:
                    break
            assert time.monotonic() < deadline


def test_who_has_said_nothing_makes_room_for_the_next(root, orders):
    """The longest silent first: else strangers kept out those who have something to say."""
    with Forked(root, limits=Limits(peers=2)) as server, Peer(server.path) as one, Peer(server.path) as silent:
        one.create("createTailer", "orders")
        with Peer(server.path) as three:
            assert silent.is_left() == "too many are connected"
            three.create("createTailer", "orders")
            with Peer(server.path) as four:
                assert four.is_left() == "too many are connected"
            one.create("createTailer", "orders")


def test_a_peer_that_does_not_read_its_replies_is_not_read_either_and_left(root, orders):
    """R16; the others go on."""
    orders.put_many([bytes(100_000)] * 20)
    with Forked(root, limits=Limits(half=0.2)) as server, Peer(server.path) as good, Peer(server.path) as deaf:
        cid = deaf.create("createTailer", "orders")["cid"]
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asked = call(f"cid: {cid}\ntid: 1", "hasNext: { index: 0, batch: 10 }")
        deaf.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            deaf.send(asked * 100_000)
        other = good.create("createTailer", "orders")["cid"]
        assert len(good.ask(f"cid: {other}", "hasNext: { index: 0, batch: 10 }")["reply"]) == 10
        hung_up = select.poll()
        hung_up.register(deaf.socket, 0)
        assert hung_up.poll(20_000)


def test_more_requests_than_a_peer_may_have_are_read_later_and_all_are_answered(root, orders):
    with Forked(root, limits=Limits(requests=3, memory=1000, rate=500)) as server, Peer(server.path) as peer:
        cid = peer.create("createAppender", "orders")["cid"]
        many = 600
        thread = threading.Thread(
            target=peer.send, args=(b"".join(call(f"cid: {cid}\ntid: {each}", "submit: a") for each in range(many)),)
        )
        thread.start()
        assert [peer.reply() for _ in range(many)] == [(each, {"index": each}) for each in range(many)]
        thread.join()


def test_who_sends_no_more_still_gets_its_answers(served):
    with Peer(served.port) as peer:
        peer.send(call("csp: //host/orders#appender\ntid: 1", "submit: a", "submit: b"))
        peer.socket.shutdown(socket.SHUT_WR)
        assert [peer.reply(), peer.reply()] == [(1, {"index": 0}), (1, {"index": 1})]
        assert peer.is_left() == ""


# ---------------------------------------------------------------- what was answered is there
def test_what_was_answered_is_there_after_kill_9(root, orders):
    """Several clients submit, some ahead of their answers; the server is killed; no index that was told is wrong."""
    told: dict[int, str] = {}
    lock = threading.Lock()

    def submit(path, name):
        with Peer(path) as peer:
            count = 0
            try:
                while True:
                    texts = [f"{name}-{count + each}" for each in range(20)]
                    peer.send(call("csp: //host/orders#appender\ntid: 1", *(f"submit: {each}" for each in texts)))
                    for text in texts:
                        _, answered = peer.reply()
                        with lock:
                            told[answered["index"]] = text
                    count += 20
            except (EOFError, ConnectionError):
                return

    for round_ in range(2):
        with Forked(root) as server:
            threads = [threading.Thread(target=submit, args=(server.path, f"r{round_}c{each}")) for each in range(3)]
            for each in threads:
                each.start()
            before = len(told)
            deadline = time.monotonic() + 20
            while len(told) < before + 300:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            server.end(signal.SIGKILL)
            for each in threads:
                each.join()
    there = {each.index: each.payload.decode() for each in orders.reader()}
    assert {index: there[index] for index in told} == told
    assert len(set(there.values())) == len(there)
    for name in {each.rpartition("-")[0] for each in there.values()}:
        numbers = [int(each.rpartition("-")[2]) for each in there.values() if each.startswith(f"{name}-")]
        assert numbers == list(range(len(numbers)))  # in order, and none left out


@pytest.mark.disk
def test_puts_that_wait_for_the_disk_hold_up_nobody_else_and_are_on_it_when_answered(root, orders):
    queue = shmq.open(root / "kept", durability="sync")
    with queue, Forked(root) as server, Peer(server.path) as peer, Peer(server.path) as other:
        peer.send(call("csp: //host/kept#appender\ntid: 1", *(f"submit: m{each}" for each in range(50))))
        assert other.create("createTailer", "orders")["end"] == 0
        for each in range(50):
            assert peer.reply() == (1, {"index": each})
            assert queue.durable_index > each


def test_documents_of_binary_wire_are_answered_in_it(served):
    with Peer(served.path) as peer:
        raw = bytes.fromhex("b903637370") + b"\xf7//host/orders#appender\xb9\x03tid\xa1\x05".replace(b"\xf7", b"\xf6")
        peer.send(frame(raw, META) + frame(b"\xb9\x06submit\xe5hello"))
        word = struct.unpack("<I", peer._exactly(4))[0]
        assert peer._exactly(word & META - 1) == b"\xb9\x03tid\xa1\x05"
        word = struct.unpack("<I", peer._exactly(4))[0]
        assert document(peer._exactly(word)) == {"index": 0}
